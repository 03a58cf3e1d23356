"""`alfa train`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alfa.cli._options import (
    Backbone,
    Device,
    Json,
    Seed,
    Set,
    Shot,
    Threads,
    Way,
    check_choices,
    with_seed,
)

if TYPE_CHECKING:
    from alfa.config import Choices, Experiment


def train(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A dataset such as `cifar-fs`, `strokes` or `sinusoid`; a folder of class folders "
            "of images, or an archive of one; or an experiment, a .toml file."
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Such as `maml`; by default that of TARGET or `alfa+maml`.")
    ] = None,
    backbone: Backbone = None,
    way: Way = None,
    shot: Shot = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder; by default `runs/` and TARGET.")
    ] = None,
    settings: Set = None,
    seed: Seed = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Train this many runs, with successive seeds, in OUT/seed-N."),
    ] = None,
    on_problem: Annotated[
        str | None,
        typer.Option(help="For a folder: `skip` images that cannot be used, or `stop` (default)."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Resume a run folder, to the same numbers.")
    ] = None,
    or_resume: Annotated[
        bool, typer.Option("--or-resume", help="Resume if the folder has this run already.")
    ] = False,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes of this machine that train together.")
    ] = 1,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="How often to resume after one of them has died.")
    ] = 0,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a meta-learner, and test its best model.

    A dataset is preferred to a folder of the same name; write `./NAME` for the folder. Methods:
    `maml`, `alfa+maml`, `maml+l2f`, `alfa+maml+l2f`, `proto-maml`, `alfa+proto-maml`, `random`,
    and `alfa+random`. `strokes-demo` trains a model for drawn characters within minutes.

    With --seeds, complete runs are skipped, and with --or-resume, the others are resumed;
    `alfa compare OUT OTHER` takes the seeds into account.

    On several machines, start it by `torchrun ... -m alfa train ...` on each.

    Examples:

        alfa train sinusoid --method maml --out runs/maml

        alfa train cifar-fs --method alfa+maml --backbone resnet12 --shot 1

        alfa train strokes --seeds 5 --out runs/strokes

        alfa train my.toml --set rule.name=sgd --set outer.num_iterations=10000 --seed 1

        alfa train ~/pets --out runs/pets

        alfa train --resume runs/maml

        alfa train cifar-fs --processes 2 --max-restarts 3
    """
    from alfa.cli._run_training import Computing, train_and_print, train_seeds
    from alfa.config import Choices

    choices = Choices(method, backbone, way, shot)
    overrides = with_seed(settings, seed)
    computing = Computing(device, threads, as_json)
    if seeds is not None:
        _check_one_process(processes, max_restarts)
    if resume is not None:
        others = {"TARGET": target, "--out": out, "--seeds": seeds, "--on-problem": on_problem}
        job = _resumed(resume, choices, overrides, others)
    else:
        # Preparing a folder takes long, so the run folder is checked before.
        check = None if seeds is not None else partial(_check_free, or_resume=or_resume)
        job = _new(target, out, choices, overrides, on_problem, check, quiet=as_json)
    if seeds is not None:
        train_seeds(job.config, job.path, seeds, computing, or_resume=or_resume)
    elif processes == 1 and max_restarts == 0:
        train_and_print(job.config, job.path, computing, or_resume=or_resume or resume is not None)
    else:
        _check_free(job.path, or_resume=or_resume or resume is not None)
        options = [*(["--or-resume"] if or_resume else []), *computing.words]
        _launch(job, options, device, processes, max_restarts)


@dataclass(frozen=True)
class _Job:
    """What to train where, and the arguments for other processes.

    For a folder of images, the path of a file with the experiment must precede the arguments.
    """

    config: Experiment
    path: Path
    words: list[str]
    is_folder: bool = False


def _resumed(
    resume: Path, choices: Choices, overrides: list[str], others: Mapping[str, object]
) -> _Job:
    """A run that is resumed."""
    from alfa._distributed import is_one_of_many
    from alfa.errors import CheckpointError, ConfigError
    from alfa.runs import Run, RunFiles

    options = {f"--{key}": value for key, value in asdict(choices).items()}
    given = [name for name, value in {**others, **options}.items() if value is not None]
    if given:
        raise ConfigError(
            f"--resume takes its experiment and folder from the run; omit {' and '.join(given)}."
        )
    if is_one_of_many() and not RunFiles(resume).exists:
        raise CheckpointError(
            f"{resume} is not a run on this machine; with --resume all machines must see the run "
            "folder, so put it where they do, or give its TARGET, --out and --or-resume."
        )
    config = Run.open(resume).with_overrides(overrides)
    return _Job(config, resume, ["--resume", str(resume), *_set(overrides)])


def _new(
    target: str | None,
    out: Path | None,
    choices: Choices,
    overrides: list[str],
    on_problem: str | None,
    check: Callable[[Path], None] | None,
    *,
    quiet: bool,
) -> _Job:
    """A run on a dataset, a folder of images, or a .toml file."""
    from alfa._distributed import is_one_of_many
    from alfa.build import title_of
    from alfa.cli.image_folder import is_image_folder, prepare_folder
    from alfa.config import compose
    from alfa.errors import ConfigError

    if target is None:
        raise ConfigError(
            "give a TARGET to train on (a dataset, a folder of images, or a .toml file), or a run "
            "to resume by --resume."
        )
    if on_problem is not None:
        check_choices(on_problem=on_problem)
    is_folder = is_image_folder(target)
    name = title_of(Path(target)) if is_folder else Path(target).stem
    path = out or Path("runs") / "-".join(filter(None, [name, choices.label]))
    if not is_folder:
        if on_problem is not None:
            raise ConfigError("--on-problem is for a folder of images; omit it.")
        config = compose(target, **asdict(choices), overrides=overrides)
        chosen = {f"--{key}": value for key, value in asdict(choices).items() if value is not None}
        words = [str(word) for pair in chosen.items() for word in pair]
        return _Job(config, path, [target, *words, *_set(overrides), "--out", str(path)])
    if is_one_of_many():
        raise ConfigError(
            "only one process can prepare a folder of images; use --processes instead of torchrun, "
            "or prepare it with `alfa data prepare folder` and train on it by name."
        )
    if check is not None:
        check(path)
    config = prepare_folder(Path(target), choices, overrides, on_problem or "stop", quiet=quiet)
    return _Job(config, path, ["--out", str(path)], is_folder=True)


def _set(overrides: list[str]) -> list[str]:
    return [word for override in overrides for word in ("--set", override)]


def _check_free(path: Path, *, or_resume: bool) -> None:
    """Raise unless a run can begin in a folder, or be resumed."""
    from alfa.runs import RunFiles

    if not (or_resume and RunFiles(path).exists):
        RunFiles(path).check_empty()


def _check_one_process(processes: int, max_restarts: int) -> None:
    from alfa._distributed import is_one_of_many
    from alfa.errors import ConfigError

    if processes > 1 or max_restarts > 0 or is_one_of_many():
        raise ConfigError(
            "--seeds trains its runs one after the other in one process; start each seed with "
            "--seed to use --processes, --max-restarts, or torchrun."
        )


def _launch(job: _Job, options: list[str], device: str, processes: int, max_restarts: int) -> None:
    """Train with several processes of this machine."""
    from alfa._distributed import check_cards, is_one_of_many
    from alfa.cli.launch import launch
    from alfa.errors import ConfigError

    if is_one_of_many():
        raise ConfigError("--processes is for one machine alone; leave it to torchrun here.")
    check_cards(device, processes)
    with _experiment_file(job) as file:
        launch(
            ["train", *file, *job.words, *options],
            count=processes,
            max_restarts=max_restarts,
            hint=f"resume it with `alfa train --resume {job.path}`",
        )


@contextmanager
def _experiment_file(job: _Job) -> Iterator[list[str]]:
    """The path of a file with the experiment of a folder, which exists until the end."""
    if not job.is_folder:
        yield []
        return
    import tempfile

    import tomli_w

    from alfa.config import to_dict

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.toml"
        file.write_text(tomli_w.dumps(to_dict(job.config)), encoding="utf-8")
        yield [str(file)]
