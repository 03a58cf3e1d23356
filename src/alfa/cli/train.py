"""`alfa train`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from alfa.config import Experiment
    from alfa.train import Processes

Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one setting, such as `outer.num_iterations=100`."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="CPU threads; by default one for perceptrons.")
]


def train(
    experiment: Annotated[
        str | None,
        typer.Argument(help="A .toml file, or a built-in experiment such as `sinusoid-alfa`."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Another way to name a built-in experiment.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Train on a folder of class folders of images, or an archive of one."),
    ] = None,
    on_problem: Annotated[
        str | None,
        typer.Option(help="With --data: `skip` what cannot be used, or `stop`, the default."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder; by default `runs/` and the name.")
    ] = None,
    settings: Set = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Decides everything random.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="A run folder to go on with, to the same numbers.")
    ] = None,
    or_resume: Annotated[
        bool, typer.Option("--or-resume", help="Go on if the folder has this run already.")
    ] = False,
    processes: Annotated[
        int, typer.Option(min=1, help="How many train it together on this machine.")
    ] = 1,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="How often to go on after one of them has died.")
    ] = 0,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a meta-learner, and test its best model.

    On several machines, start it by `torchrun ... -m alfa train ...` on each.

    Examples:

        alfa train sinusoid-alfa --out runs/alfa

        alfa train my.toml --set rule.name=sgd --set outer.num_iterations=10000 --seed 1

        alfa train --resume runs/alfa

        alfa train --preset strokes-demo

        alfa train --data ~/pets --out runs/pets

        alfa train cifar-fs-alfa --processes 2 --max-restarts 3
    """
    from alfa.config import load_experiment
    from alfa.errors import ConfigError
    from alfa.train import Run, check_cards, is_one_of_many

    overrides = [*(settings or []), *([f"seed={seed}"] if seed is not None else [])]
    experiment = _named(experiment, preset, data, resume, out, on_problem)
    if resume is not None:
        _check_seen(resume)
        config, path = load_experiment(Run(resume).config, overrides), resume
    elif data is not None:
        from alfa.own_data import title_of

        path = out or Path("runs") / title_of(data)
        config = _own(data, path, overrides, on_problem or "stop", or_resume, as_json)
    elif experiment is None:
        raise ConfigError(
            "name an EXPERIMENT to train, images to train on by --data, or a run to go on with by "
            "--resume."
        )
    else:
        config = load_experiment(experiment, overrides)
        path = out or Path("runs") / Path(experiment).stem
    if processes == 1 and max_restarts == 0:
        _train(config, path, resume is not None, or_resume, device, threads, as_json)
        return
    if is_one_of_many():
        raise ConfigError("--processes is for one machine alone; leave it to torchrun here.")
    # Before anything is started: what is wrong is then said once.
    Run(path).check(resume=resume is not None or (or_resume and Run(path).exists))
    check_cards(device, processes)
    from alfa.cli.launch import launch

    # What is built for images is in no file yet, and has every override in it.
    with _written(config if data is not None else None) as file:
        which = ["--resume", str(path)]
        if resume is None:
            which = [str(experiment if file is None else file), "--out", str(path)]
            which += ["--or-resume"] if or_resume else []
        launch(
            _words(which, overrides if file is None else [], device, threads, as_json),
            count=processes,
            max_restarts=max_restarts,
            hint=f"go on with `alfa train --resume {path}`",
        )


def _named(
    experiment: str | None,
    preset: str | None,
    data: Path | None,
    resume: Path | None,
    out: Path | None,
    on_problem: str | None,
) -> str | None:
    """The experiment that is to be read, if one is.

    Raises:
        ConfigError: what is given does not fit together, or there is no such preset.
    """
    from alfa.config import check_builtin
    from alfa.errors import ConfigError, check_choice

    ways = {"EXPERIMENT": experiment, "--preset": preset, "--data": data}
    given = [way for way, value in ways.items() if value is not None]
    if resume is not None and (given or out is not None):
        away = " and ".join(given + (["--out"] if out is not None else []))
        raise ConfigError(
            f"--resume takes its experiment and folder from the run; leave {away} away."
        )
    if len(given) > 1:
        raise ConfigError(
            f"{' and '.join(given)} each say what to train; give one of them, and change settings "
            "of it by --set."
        )
    if on_problem is not None:
        check_choice("--on-problem", on_problem, ("stop", "skip"))
    if on_problem is not None and data is None:
        raise ConfigError("--on-problem is about the images of --data; leave it away.")
    if preset is not None:
        check_builtin(preset)
    return experiment if preset is None else preset


def _own(
    data: Path, path: Path, overrides: list[str], on_problem: str, or_resume: bool, as_json: bool
) -> Experiment:
    """The experiment on a folder of images, which are prepared now."""
    from alfa.cli.own_data import own_experiment
    from alfa.errors import ConfigError
    from alfa.train import Run, is_one_of_many

    if is_one_of_many():
        raise ConfigError(
            "--data prepares images, which only one process can do; use --processes instead of "
            "torchrun, or prepare them by `alfa data prepare folder` and name them in a .toml file."
        )
    # Preparing takes long, and would be in vain.
    Run(path).check(resume=or_resume and Run(path).exists)
    return own_experiment(data, overrides=overrides, on_problem=on_problem, quiet=as_json)


@contextmanager
def _written(config: Experiment | None) -> Iterator[str | None]:
    """A file with the experiment, for as long as other processes may read it."""
    if config is None:
        yield None
        return
    import tempfile

    import tomli_w

    from alfa.config import to_dict

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.toml"
        file.write_text(tomli_w.dumps(to_dict(config)), encoding="utf-8")
        yield str(file)


def _words(
    which: list[str], overrides: list[str], device: str, threads: int | None, as_json: bool
) -> list[str]:
    """What one of several processes is called with."""
    words = ["train", *which, *(word for change in overrides for word in ("--set", change))]
    words += ["--device", device, *([] if threads is None else ["--threads", str(threads)])]
    return [*words, *(["--json"] if as_json else [])]


def _train(
    config: Experiment,
    path: Path,
    resume: bool,
    or_resume: bool,
    device: str,
    threads: int | None,
    as_json: bool,
) -> None:
    from alfa.cli.progress import meter, show_training
    from alfa.cli.show import result_table
    from alfa.cli.start import set_up
    from alfa.cli.stopping import code_of, stoppable
    from alfa.errors import AlfaError
    from alfa.train import joined
    from alfa.train import train as run_training

    with joined(device) as (others, own_device):
        quiet = as_json or not others.is_first
        with stoppable(quiet=quiet) as wish:
            try:
                others.together(lambda: set_up(config, device=own_device, threads=threads))
                began = _has_begun(path, others, resume=resume, or_resume=or_resume)
                with meter(path.name, quiet=quiet) as shown:
                    result = run_training(
                        config,
                        path,
                        resume=began,
                        device=own_device,
                        processes=others,
                        should_stop=wish,
                        on_progress=show_training(shown, path.name),
                    )
            except KeyboardInterrupt:
                if others.is_first:
                    wish.tell(f"go on with `alfa train --resume {path}`")
                raise typer.Exit(wish.code) from None
            except (AlfaError, OSError) as error:
                # The first one speaks for all.
                if others.is_first:
                    raise
                raise typer.Exit(code_of(error)) from None
    if not others.is_first:
        return
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        result_table({path.name: result}, folder=path)


def _has_begun(path: Path, others: Processes, *, resume: bool, or_resume: bool) -> bool:
    """Whether the run is there, and these processes are to go on with it.

    Those that are started anew do so, whatever they were called with. How often they were, the
    machines of one launch need not agree about; only the first one need see the folder.
    """
    from alfa.train import Run, is_restarted, launch_name

    run, name = Run(path), launch_name()
    is_again = others.any(is_restarted()) or name is not None

    def goes_on() -> bool:
        return resume or (run.exists and (or_resume or (is_again and run.is_of(name))))

    return others.from_first(goes_on)


def _check_seen(resume: Path) -> None:
    """Make sure that there is a run to go on with.

    Raises:
        CheckpointError: there is none.
    """
    from alfa.errors import CheckpointError
    from alfa.train import Run, is_one_of_many

    if is_one_of_many() and not Run(resume).exists:
        raise CheckpointError(
            f"{resume} is not a run on this machine; with --resume all machines must see the run "
            "folder, so put it where they do, or name its EXPERIMENT, --out and --or-resume."
        )
    Run(resume).experiment()
