"""`alfa compare`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alfa.cli._options import (
    BatchNorm,
    Checkpoint,
    Dataset,
    Device,
    Json,
    NumQuery,
    NumSteps,
    NumTasks,
    Shot,
    Size,
    Split,
    TaskSet,
    Threads,
    Way,
    check_choices,
)

if TYPE_CHECKING:
    from alfa.cli._groups import Group, OnTasks
    from alfa.evaluation import Difference, Evaluation
    from alfa.runs import Run

# The number of tasks of each source, and their seed, unless the user chooses others.
_NUM_RANK_TASKS, _RANK_SEED = 600, 0


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders, or folders of `alfa train --seeds`; first: reference."),
    ],
    rank: Annotated[
        bool, typer.Option("--rank", help="Rank the runs on each of the --sources.")
    ] = False,
    sources: Annotated[
        str | None, typer.Option(help="Datasets for --rank, such as `md-omniglot,md-flower`.")
    ] = None,
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
        int | None, typer.Option(min=0, help="Seed of the tasks; by default the first run's.")
    ] = None,
    batch_norm: BatchNorm = None,
    settings: TaskSet = None,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Test runs on the same tasks, and decide which differences are significant.

    Differences are taken task by task, which detects smaller ones than two separate intervals.

    A folder with runs `seed-0`, `seed-1`, ... of `alfa train --seeds` is one group: its figure is
    the mean over its runs. Beside the interval over tasks, the table has the standard deviation
    over seeds and the 95 % interval of the mean over seeds (Student's t). A difference between
    groups is decided if it exceeds both the interval over tasks and that over seeds (Welch).
    Between single runs, only the choice of the tasks is taken into account.

    With --rank, runs are tested on 600 tasks of each of the --sources, and ranked as on
    Meta-Dataset's leaderboard: runs share a rank if their difference lies within the 95 %
    interval of two independent means. Results are stored in the run folders and reused.

    Examples:

        alfa compare runs/maml runs/alfa

        alfa compare runs/maml runs/alfa --shot 1 --split val

        alfa compare runs/maml runs/alfa --dataset cub --num-tasks 300 --json

        alfa compare runs/maml runs/alfa --rank --sources md-omniglot,md-traffic-sign
    """
    from alfa.cli._groups import evaluate_group, open_group
    from alfa.cli._tasks import check_same_tasks, task_changes
    from alfa.errors import ConfigError
    from alfa.evaluation import evaluate_run

    check_choices(split=split, checkpoint=checkpoint)
    sizes = {"way": way, "shot": shot, "num_query": num_query}
    shared: dict[str, Any] = {"device": device, "threads": threads}
    if rank or sources is not None:
        from alfa.cli._rank import rank_runs

        others: dict[str, Any] = {**sizes, "num_steps": num_steps, "dataset": dataset}
        others |= {"batch_norm": batch_norm, "set": settings}
        others |= {"split": None if split == "test" else split}
        _check_rank_options(rank, sources, others)
        rank_runs(
            runs,
            sources or "",
            size=size,
            num_tasks=num_tasks or _NUM_RANK_TASKS,
            seed=_RANK_SEED if seed is None else seed,
            checkpoint=checkpoint,
            as_json=as_json,
            **shared,
        )
        return
    opened = [open_group(path) for path in runs]
    every = [run for group in opened for run in group]
    if len(every) < 2:
        raise ConfigError(f"only {runs[0]} is given, but a comparison takes two runs or more.")
    changes = {
        run.path: task_changes(run, dataset=dataset, size=size, settings=settings, **sizes)
        for run in every
    }
    check_same_tasks(every, [changes[run.path] for run in every], split)
    first = every[0].experiment

    def evaluate(run: Run, on_tasks: OnTasks) -> Evaluation:
        return evaluate_run(
            run,
            overrides=changes[run.path],
            checkpoint=checkpoint,
            num_tasks=first.test.num_tasks if num_tasks is None else num_tasks,
            num_steps=num_steps,
            split=split,  # type: ignore[arg-type]
            seed=first.seed if seed is None else seed,
            batch_norm=batch_norm,
            device=device,
            on_tasks=on_tasks,
        )

    groups = [
        evaluate_group(path, group, evaluate, quiet=as_json, **shared)
        for path, group in zip(runs, opened, strict=True)
    ]
    differences = [_GroupDifference.of(group, groups[0]) for group in groups]
    if as_json:
        rows = [_as_dict(*pair) for pair in zip(groups, differences, strict=True)]
        typer.echo(json.dumps(rows, indent=2))
    else:
        _print(groups, differences)


def _check_rank_options(rank: bool, sources: str | None, others: dict[str, Any]) -> None:
    from alfa.errors import ConfigError

    if not rank or sources is None:
        raise ConfigError("--rank and --sources belong together; give both, or neither.")
    given = [f"--{name.replace('_', '-')}" for name, value in others.items() if value is not None]
    if given:
        raise ConfigError(f"{' and '.join(given)} cannot be given with --rank; omit them.")


@dataclass(frozen=True)
class _GroupDifference:
    """How much higher the figure of a group is than that of the first, over tasks and seeds."""

    tasks: Difference
    seed_interval: float | None

    @classmethod
    def of(cls, group: Group, first: Group) -> _GroupDifference:
        from alfa.evaluation import difference, seed_difference_interval

        interval = seed_difference_interval(group.figures, first.figures)
        return cls(difference(group.mean, first.mean), interval)

    @property
    def is_decided(self) -> bool:
        over_seeds = self.seed_interval is None or abs(self.tasks.mean) > self.seed_interval
        return self.tasks.is_decided and over_seeds


def _as_dict(group: Group, over: _GroupDifference) -> dict[str, Any]:
    content = {
        "run": str(group.path),
        **group.mean.as_dict(),
        "per_task": group.mean.per_task,
        "difference": over.tasks.mean,
        "difference_interval": over.tasks.interval,
        "difference_seed_interval": over.seed_interval,
        "is_decided": over.is_decided,
        "seeds": asdict(group.seeds),
    }
    if len(group.runs) > 1:
        content["runs"] = [
            {"run": str(run.path), **found.as_dict(), "per_task": found.per_task}
            for run, found in zip(group.runs, group.evaluations, strict=True)
        ]
    return content


def _print(groups: Sequence[Group], differences: Sequence[_GroupDifference]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from alfa.cli.show import figure_text, seeds_text, wide_console

    first = groups[0].mean
    is_accuracy = first.accuracy is not None
    scale, places = (100.0, 2) if is_accuracy else (1.0, 4)
    has_seeds = any(len(group.runs) > 1 for group in groups)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run")
    headers = ["figure", *(["over seeds"] if has_seeds else [])]
    intervals_of = " (+- tasks, seeds)" if has_seeds else ""
    headers += [f"beyond {escape(str(groups[0].path))}{intervals_of}", ""] * (len(groups) > 1)
    for header in headers:
        table.add_column(header, justify="right" if header else "left")
    for group, over in zip(groups, differences, strict=True):
        cells = [figure_text(group.mean)]
        if has_seeds:
            cells.append(seeds_text(group.seeds, is_accuracy) if len(group.runs) > 1 else "-")
        if group is not groups[0]:
            intervals = [over.tasks.interval, *([over.seed_interval] if has_seeds else [])]
            texts = ["?" if x is None else f"{scale * x:.{places}f}" for x in intervals]
            cells.append(f"{scale * over.tasks.mean:+.{places}f} +- {', '.join(texts)}")
            cells.append("decided" if over.is_decided else "undecided")
        table.add_row(escape(str(group.path)), *cells)
        if len(group.runs) > 1:
            for run, found in zip(group.runs, group.evaluations, strict=True):
                table.add_row(f"  {escape(run.path.name)}", figure_text(found))
    console = wide_console()
    console.print(table, highlight=False)
    console.print(f"\n{_explanation(groups, differences)}", highlight=False, soft_wrap=True)


def _explanation(groups: Sequence[Group], differences: Sequence[_GroupDifference]) -> str:
    """How to read the table."""
    first, fewest = groups[0].mean, differences[0].tasks.fewest_tasks
    has_seeds = any(len(group.runs) > 1 for group in groups)
    counts_seeds = all(len(group.runs) > 1 for group in groups)
    text = f"Over the same {first.num_tasks} {first.split} tasks, with 95 % intervals"
    if has_seeds:
        text += " over tasks and over seeds"
    beyond = "and seeds explains" if counts_seeds else "explains, other seeds not counted"
    text += f"; decided: more than the choice of tasks {beyond}." if len(groups) > 1 else "."
    text += f" Fewer than {fewest} tasks decide nothing." if first.num_tasks < fewest else ""
    return text + ("" if first.accuracy is not None else " Of losses, lower is better.")
