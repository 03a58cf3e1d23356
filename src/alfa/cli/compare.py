"""`alfa compare`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alfa.cli.evaluate import (
    BatchNorm,
    Checkpoint,
    Dataset,
    NumQuery,
    NumSteps,
    NumTasks,
    Shot,
    Size,
    Split,
    TaskSet,
    Way,
)
from alfa.cli.train import Device, Json, Threads

if TYPE_CHECKING:
    from alfa.config import Experiment
    from alfa.data import Tasks
    from alfa.train import Difference, Evaluation


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; the first is compared with.")],
    num_tasks: NumTasks = None,
    num_steps: NumSteps = None,
    split: Split = "test",
    checkpoint: Checkpoint = "best",
    dataset: Dataset = None,
    size: Size = None,
    way: Way = None,
    shot: Shot = None,
    num_query: NumQuery = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the tasks; by default the first run's.")
    ] = None,
    batch_norm: BatchNorm = None,
    settings: TaskSet = None,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Test runs on the same tasks, and say which differences the choice of tasks does not explain.

    Differences are taken task by task, which tells much smaller ones than two intervals do. They
    are those of these trainings; other seeds are not counted.

    Examples:

        alfa compare runs/maml runs/alfa

        alfa compare runs/maml runs/alfa --shot 1 --split val

        alfa compare runs/maml runs/alfa --dataset cub --num-tasks 300 --json
    """
    from alfa.cli.evaluate import check_options, task_changes
    from alfa.cli.progress import meter, show_testing
    from alfa.cli.start import set_up
    from alfa.errors import ConfigError
    from alfa.train import Run, difference, judge

    check_options(split, checkpoint)
    if len(runs) < 2:
        raise ConfigError(f"only {runs[0]} is given, but a comparison takes two runs or more.")
    experiments = [Run(path).experiment() for path in runs]
    first = experiments[0]
    changes = [
        task_changes(
            experiment,
            dataset=dataset,
            size=size,
            settings=settings,
            way=way,
            shot=shot,
            num_query=num_query,
        )
        for experiment in experiments
    ]
    check_same_tasks(runs, changes, split)
    count = first.test.num_tasks if num_tasks is None else num_tasks
    evaluations: list[Evaluation] = []
    differences: list[Difference] = []
    for path, experiment, own in zip(runs, experiments, changes, strict=True):
        set_up(experiment, device=device, threads=threads)
        with meter(path.name, quiet=as_json) as shown, named_errors(path):
            found, _ = judge(
                Run(path),
                changes=own,
                checkpoint=checkpoint,
                num_tasks=count,
                num_steps=num_steps,
                split=split,  # type: ignore[arg-type]
                seed=first.seed if seed is None else seed,
                batch_norm=batch_norm,
                device=device,
                on_tasks=show_testing(shown),
            )
        evaluations.append(found)
        differences.append(difference(found, evaluations[0]))
    if as_json:
        content = [
            {
                "run": str(path),
                **found.as_dict(),
                "per_task": found.per_task,
                "difference": over.mean,
                "difference_interval": over.interval,
                "is_decided": over.is_decided,
            }
            for path, found, over in zip(runs, evaluations, differences, strict=True)
        ]
        typer.echo(json.dumps(content, indent=2))
        return
    _print(runs, evaluations, differences)


def check_same_tasks(
    runs: list[Path], changes: list[list[str]], split: str, *, hint: str = ""
) -> None:
    """Refuse runs whose tasks, with these changes, are not the same.

    Args:
        runs: run folders.
        changes: to the tasks of each.
        split: that the tasks come from.
        hint: what else helps where images of one size are not those of another.

    Raises:
        ConfigError: says in what they differ.
    """
    from alfa.config import load_experiment
    from alfa.errors import ConfigError
    from alfa.train import Run

    experiments = [
        load_experiment(Run(path).config, own) for path, own in zip(runs, changes, strict=True)
    ]
    tasks = [_deciding(experiment, split) for experiment in experiments]
    for path, other in zip(runs, tasks, strict=True):
        if other != tasks[0]:
            raise ConfigError(_unequal(runs[0], path, tasks[0], other))
    _check_same_images(runs, experiments, split, hint)


# What says in which size images were prepared; those of another one need not be the same.
_OPENING = ("size", "stored_size")
# What changes how a model sees its images, or how it is trained, but not which tasks there are.
_INDIFFERENT = ("augment", "seen_size", *_OPENING)


def _check_same_images(
    runs: list[Path], experiments: list[Experiment], split: str, hint: str
) -> None:
    from alfa.build import build_tasks
    from alfa.errors import ConfigError

    contents = [experiment.tasks.model_dump() for experiment in experiments]
    sizes = [{name: own.get(name) for name in _OPENING} for own in contents]
    # Runs that ask for the same size open the same store.
    if all(own == sizes[0] for own in sizes):
        return
    first, *others = (build_tasks(experiment) for experiment in experiments)
    for path, own, other in zip(runs[1:], sizes[1:], others, strict=True):
        if not _have_same_images(first, other, split):
            dataset = contents[0].get("dataset")
            names = dataset if isinstance(dataset, str) else ", ".join(dataset or ())
            told = [
                f"tasks.{n} is {sizes[0][n]} and {own[n]}" for n in own if own[n] != sizes[0][n]
            ]
            raise ConfigError(
                f"{runs[0]} and {path} would be tested on different images of {names} "
                f"({', '.join(told)}, and the two sizes were not prepared from the same images), "
                "but only figures on the same tasks can be compared; prepare both from the same "
                f"files{hint}."
            )


def _have_same_images(tasks: Tasks, other: Tasks, split: str) -> bool:
    # Of the same store nobody need read the names, which may be many.
    if tasks.signature().data == other.signature().data:
        return True
    listed, others = (each.listed(split) for each in (tasks, other))  # type: ignore[arg-type]
    return listed == others


def _deciding(experiment: Experiment, split: str) -> dict[str, Any]:
    """What decides which tasks there are."""
    others = (*_INDIFFERENT, *(() if split == "val" else ("val_way",)))
    content = experiment.tasks.model_dump()
    return {key: value for key, value in content.items() if key not in others}


def _unequal(first: Path, path: Path, wanted: dict[str, Any], got: dict[str, Any]) -> str:
    names = [name for name in {**wanted, **got} if wanted.get(name) != got.get(name)]
    told = ", ".join(f"tasks.{n} is {wanted.get(n)} and {got.get(n)}" for n in names)
    hint = "; name one for both with --dataset" if names == ["dataset"] else ""
    if names and set(names) <= {"way", "shot", "num_query"}:
        hint = f"; give both the same with --{' --'.join(names).replace('_', '-')}"
    return (
        f"{first} and {path} have different tasks ({told}), and only figures on the same tasks can "
        f"be compared{hint}."
    )


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Say of which run an error speaks."""
    from alfa.errors import DivergedError

    try:
        yield
    except DivergedError as error:
        raise DivergedError(f"{path}: {error}") from None


def _print(runs: list[Path], evaluations: list[Evaluation], differences: list[Difference]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from alfa.cli.show import figure_text, wide_console

    scale = 1.0 if evaluations[0].accuracy is None else 100.0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("run", "figure", f"beyond {escape(str(runs[0]))}", ""):
        table.add_column(header, justify="left" if header in ("run", "") else "right")
    table.add_row(escape(str(runs[0])), figure_text(evaluations[0]), "", "")
    for path, found, over in list(zip(runs, evaluations, differences, strict=True))[1:]:
        places = 2 if scale == 100 else 4
        spread = "?" if over.interval is None else f"{scale * over.interval:.{places}f}"
        table.add_row(
            escape(str(path)),
            figure_text(found),
            f"{scale * over.mean:+.{places}f} +- {spread}",
            "decided" if over.is_decided else "undecided",
        )
    console = wide_console()
    console.print(table, highlight=False)
    count, split = evaluations[0].num_tasks, evaluations[0].split
    fewest = differences[0].fewest_tasks
    few = f" Fewer than {fewest} tasks decide nothing." if count < fewest else ""
    lower = "" if scale == 100 else " Of losses, lower is better."
    console.print(
        f"\nOver the same {count} {split} tasks, with 95 % intervals; decided: more than the "
        f"choice of tasks explains, other seeds not counted.{few}{lower}",
        highlight=False,
        soft_wrap=True,
    )
