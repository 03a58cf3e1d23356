"""`alfa train`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from alfa.cli import _options as opts
from alfa.cli import launch, lazy
from alfa.cli._run_training import check_free, train_and_print, train_seeds
from alfa.cli.image_folder import is_image_folder, prepare_folder
from alfa.cli.start import Computing
from alfa.errors import CheckpointError, ConfigError


def train(
    target: Annotated[
        str | None,
        Argument(
            help="Dataset such as `cifar-fs`, `strokes`, or `sinusoid`; folder or archive with one "
            "folder of images per class; or experiment (.toml)."
        ),
    ] = None,
    method: Annotated[
        str | None, Option(help="Method, such as `maml`; defaults to TARGET's or `alfa+maml`.")
    ] = None,
    backbone: opts.Backbone = None,
    way: opts.Way = None,
    shot: opts.Shot = None,
    out: Annotated[
        Path | None, Option(help="Run folder; defaults to `runs/` and the name of TARGET.")
    ] = None,
    settings: opts.Set = None,
    seed: opts.Seed = None,
    seeds: Annotated[
        int | None, Option(min=1, help="Number of runs with successive seeds, in OUT/seed-N.")
    ] = None,
    on_problem: Annotated[
        str | None,
        Option(help="For unusable images in a folder: `stop` (default), or `skip` them."),
    ] = None,
    resume: Annotated[
        Path | None, Option(help="Run folder to resume, with exactly the same results.")
    ] = None,
    or_resume: Annotated[
        bool, Option("--or-resume", help="Resume the run if the folder contains it.")
    ] = False,
    processes: Annotated[
        int, Option(min=1, help="Number of processes that train together on this machine.")
    ] = 1,
    max_restarts: Annotated[
        int, Option(min=0, help="Maximum number of restarts after a process dies.")
    ] = 0,
    device: opts.Device = "cpu",
    threads: opts.Threads = None,
    as_json: opts.Json = False,
) -> None:
    """Train a meta-learner, and test its best model.

    If TARGET is both a dataset and a folder, the dataset is used; write `./NAME` for the folder.
    Methods: `maml`, `alfa+maml`, `maml+l2f`, `alfa+maml+l2f`, `proto-maml`, `alfa+proto-maml`,
    `random`, and `alfa+random`. `strokes-demo` trains a model of drawn characters within minutes.

    With --seeds, complete runs are skipped, and --or-resume resumes the others; `alfa compare OUT
    OTHER` takes the seeds into account.

    On several machines, run `torchrun ... -m alfa train ...` on each.

    Examples:

        alfa train sinusoid --method maml --out runs/maml
        alfa train cifar-fs --method alfa+maml --backbone resnet12 --shot 1
        alfa train strokes --seeds 5 --out runs/strokes
        alfa train my.toml --set rule.name=sgd --set outer.num_iterations=10000 --seed 1
        alfa train ~/pets --out runs/pets
        alfa train --resume runs/maml
        alfa train cifar-fs --processes 2 --max-restarts 3
    """
    choices = lazy.config.Choices(method, backbone, way, shot)
    overrides = opts.with_seed(settings, seed)
    computing = Computing(device, threads, as_json)
    is_single, is_joined = processes == 1 and max_restarts == 0, lazy._distributed.is_one_of_many()
    if seeds is not None and (is_joined or not is_single):
        raise ConfigError(
            "--seeds trains its runs one after another in one process; to use --processes, "
            "--max-restarts, or torchrun, train each seed separately with --seed."
        )
    if on_problem is not None:
        opts.check_choices(on_problem=on_problem)
    if resume is not None:
        others = {"TARGET": target, "--out": out, "--seeds": seeds, "--on-problem": on_problem}
        job = _resumed(resume, choices, overrides, others)
        or_resume = True
    elif target is None:
        raise ConfigError(
            "TARGET is missing; specify a dataset, a folder of images, or a .toml file, or resume "
            "a run with --resume."
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
            check_free(path, or_resume=or_resume)
        config = prepare_folder(
            Path(target), choices, overrides, on_problem or "stop", quiet=as_json
        )
        job = _Job(config, path, ["--out", str(path)], is_folder=True)
    else:
        if on_problem is not None:
            raise ConfigError("--on-problem applies only to a folder of images; omit it.")
        job = _on_dataset(target, out, choices, overrides)
    if seeds is not None:
        train_seeds(job.config, job.path, seeds, computing, or_resume=or_resume)
    elif is_single:
        train_and_print(job.config, job.path, computing, or_resume=or_resume)
    elif is_joined:
        raise ConfigError("torchrun already starts the processes; omit --processes.")
    else:
        check_free(job.path, or_resume=or_resume)
        words = ["--or-resume"] if or_resume and resume is None else []
        words += ["--device", device, *(["--json"] if as_json else [])]
        words += [] if threads is None else ["--threads", str(threads)]
        lazy._distributed.check_cards(device, processes)
        with _experiment_file(job) as file:
            launch.launch(
                ["train", *file, *job.words, *words],
                count=processes,
                max_restarts=max_restarts,
                hint=f"resume it with `alfa train --resume {job.path}`",
            )


@dataclass(frozen=True)
class _Job:
    """An experiment, its run folder, and the arguments that make other processes train it.

    For a folder of images, the path of a file with the experiment must precede the arguments.
    """

    config: lazy.config.Experiment
    path: Path
    words: list[str]
    is_folder: bool = False


def _default_path(name: str, choices: lazy.config.Choices) -> Path:
    return Path("runs") / "-".join(filter(None, [name, choices.label]))


def _resumed(
    resume: Path, choices: lazy.config.Choices, overrides: list[str], others: Mapping[str, object]
) -> _Job:
    options = {**others, **{f"--{key}": value for key, value in asdict(choices).items()}}
    given = " and ".join(name for name, value in options.items() if value is not None)
    if given:
        raise ConfigError(f"--resume reads the experiment and folder from the run; omit {given}.")
    if lazy._distributed.is_one_of_many() and not lazy.runs.RunFiles(resume).exists:
        raise CheckpointError(
            f"{resume} is not a run on this machine; --resume requires a run folder that all "
            "machines can read. Move it to shared storage, or use TARGET, --out, and --or-resume."
        )
    config = lazy.runs.Run.open(resume).with_overrides(overrides)
    return _Job(config, resume, ["--resume", str(resume), *_set(overrides)])


def _on_dataset(
    target: str, out: Path | None, choices: lazy.config.Choices, overrides: list[str]
) -> _Job:
    chosen = asdict(choices)
    config = lazy.config.compose(target, **chosen, overrides=overrides)
    path = out or _default_path(Path(target).stem, choices)
    pairs = [(f"--{key}", str(value)) for key, value in chosen.items() if value is not None]
    words = [target, *(word for pair in pairs for word in pair), *_set(overrides)]
    return _Job(config, path, [*words, "--out", str(path)])


def _set(overrides: list[str]) -> list[str]:
    return [word for override in overrides for word in ("--set", override)]


@contextmanager
def _experiment_file(job: _Job) -> Iterator[list[str]]:
    """Yield the path of a temporary file with the experiment of a folder of images."""
    if not job.is_folder:
        yield []
        return
    import tomli_w

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.toml"
        content = tomli_w.dumps(lazy.config.to_dict(job.config))
        file.write_text(content, encoding="utf-8")
        yield [str(file)]
