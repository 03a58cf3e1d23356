"""`alfa compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli._groups import Group, OnTasks
from alfa.cli._tasks import check_same_tasks, task_changes
from alfa.cli.show import figure_text, print_json, print_table, seeds_text
from alfa.cli.start import Computing
from alfa.errors import ConfigError

# Defaults of --rank: the number of tasks per source, and their seed.
_NUM_RANK_TASKS, _RANK_SEED = 600, 0


def compare(
    runs: Annotated[
        list[Path],
        Argument(
            help="Run folders or folders of `alfa train --seeds`; the first is the reference."
        ),
    ],
    rank: Annotated[bool, Option("--rank", help="Rank the runs on each of --sources.")] = False,
    sources: Annotated[
        str | None, Option(help="Datasets for --rank, such as `md-omniglot,md-flower`.")
    ] = None,
    num_tasks: opts.NumTasks = None,
    num_steps: opts.NumSteps = None,
    split: opts.Split = "test",
    checkpoint: opts.Checkpoint = "best",
    dataset: opts.Dataset = None,
    size: opts.Size = None,
    way: opts.Way = None,
    shot: opts.Shot = None,
    num_query: opts.NumQuery = None,
    seed: opts.RunSeed = None,
    batch_norm: opts.BatchNorm = None,
    settings: opts.TaskSet = None,
    device: opts.Device = "cpu",
    threads: opts.Threads = None,
    as_json: opts.Json = False,
) -> None:
    """Evaluate runs on the same tasks, and test which differences are significant.

    The test is paired by task, which detects smaller differences than two separate intervals.

    A folder with the runs `seed-0`, `seed-1`, ... of `alfa train --seeds` is one group; its figure
    is the mean over its runs. Next to the interval over tasks, the table shows the standard
    deviation over seeds and the 95 % interval of the mean over seeds (Student's t). A difference
    between groups is significant if it exceeds both the interval over tasks and the interval over
    seeds (Welch). Between single runs, only the interval over tasks counts.

    With --rank, the command evaluates the runs on 600 tasks of each source, and ranks them like
    Meta-Dataset's leaderboard: runs share a rank if their difference is within the 95 % interval of
    two independent means. Results are stored in the run folders and reused.

    Examples:

        alfa compare runs/maml runs/alfa
        alfa compare runs/maml runs/alfa --shot 1 --split val
        alfa compare runs/maml runs/alfa --dataset cub --num-tasks 300 --json
        alfa compare runs/maml runs/alfa --rank --sources md-omniglot,md-traffic-sign
    """
    opts.check_choices(split=split, checkpoint=checkpoint)
    sizes = {"way": way, "shot": shot, "num_query": num_query}
    computing = Computing(device, threads, as_json)
    if rank or sources is not None:
        others: dict[str, Any] = {**sizes, "num_steps": num_steps, "dataset": dataset}
        others |= {"split": None if split == "test" else split, "batch_norm": batch_norm}
        _check_rank_options(rank, sources, {**others, "set": settings})
        options: dict[str, Any] = {"size": size, "checkpoint": checkpoint}
        options["num_tasks"] = num_tasks or _NUM_RANK_TASKS
        options["seed"] = _RANK_SEED if seed is None else seed
        _rank([Group.open(path) for path in runs], sources or "", computing, **options)
        return
    groups = [Group.open(path) for path in runs]
    every = [run for group in groups for run in group.runs]
    if len(every) < 2:
        raise ConfigError(f"a comparison requires at least two runs, got only {runs[0]}.")
    changes = {
        run.path: task_changes(run, dataset=dataset, size=size, settings=settings, **sizes)
        for run in every
    }
    check_same_tasks(every, [changes[run.path] for run in every], split)
    first = every[0].experiment

    def evaluate(run: lazy.runs.Run, on_tasks: OnTasks) -> lazy.evaluation.Evaluation:
        return lazy.evaluation.evaluate_run(
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

    groups = [group.evaluate(evaluate, computing) for group in groups]
    differences = [_GroupDifference.of(group, groups[0]) for group in groups]
    if as_json:
        print_json([_as_dict(*pair) for pair in zip(groups, differences, strict=True)])
    else:
        _print(groups, differences)


@dataclass(frozen=True)
class _GroupDifference:
    """The difference between a group and the reference, with intervals over tasks and seeds."""

    tasks: lazy.evaluation.Difference
    seed_interval: float | None

    @classmethod
    def of(cls, group: Group, reference: Group) -> _GroupDifference:
        interval = lazy.evaluation.seed_difference_interval(group.figures, reference.figures)
        return cls(lazy.evaluation.difference(group.mean, reference.mean), interval)

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
    if group.has_seeds:
        content["runs"] = [
            {"run": str(run.path), **found.as_dict(), "per_task": found.per_task}
            for run, found in zip(group.runs, group.evaluations, strict=True)
        ]
    return content


def _print(groups: Sequence[Group], differences: Sequence[_GroupDifference]) -> None:
    is_accuracy = groups[0].mean.accuracy is not None
    scale, places = (100.0, 2) if is_accuracy else (1.0, 4)
    has_seeds = any(group.has_seeds for group in groups)
    headers = ["run", "figure", *(["over seeds"] if has_seeds else [])]
    intervals_of = " (+- tasks, seeds)" if has_seeds else ""
    headers += [f"minus {groups[0].path}{intervals_of}", ""] * (len(groups) > 1)
    rows = []
    for group, over in zip(groups, differences, strict=True):
        cells = [str(group.path), figure_text(group.mean)]
        if has_seeds:
            cells.append(seeds_text(group.seeds, is_accuracy) if group.has_seeds else "-")
        if group is not groups[0]:
            intervals = [over.tasks.interval, *([over.seed_interval] if has_seeds else [])]
            texts = ["?" if x is None else f"{scale * x:.{places}f}" for x in intervals]
            cells.append(f"{scale * over.tasks.mean:+.{places}f} +- {', '.join(texts)}")
            cells.append("significant" if over.is_decided else "not significant")
        rows.append(cells)
        if group.has_seeds:
            for run, found in zip(group.runs, group.evaluations, strict=True):
                rows.append([f"  {run.path.name}", figure_text(found)])
    print_table(headers, rows, wraps=headers)
    typer.echo(f"\n{_explanation(groups, differences[0].tasks.fewest_tasks)}")


def _explanation(groups: Sequence[Group], min_tasks: int) -> str:
    """Explain how to read the table."""
    first, has_seeds = groups[0].mean, [group.has_seeds for group in groups]
    text = f"Over the same {first.num_tasks} {first.split} tasks, with 95 % intervals over tasks"
    text += " and over seeds." if any(has_seeds) else "."
    if len(groups) > 1:
        text += " Significant: the difference exceeds the interval over tasks"
        text += " and the interval over seeds." if all(has_seeds) else "; other seeds may differ."
        if first.num_tasks < min_tasks:
            text += f" No difference is significant with fewer than {min_tasks} tasks."
    return text + ("" if first.accuracy is not None else " For losses, lower is better.")


def _check_rank_options(rank: bool, sources: str | None, others: dict[str, Any]) -> None:
    if not rank or sources is None:
        raise ConfigError("--rank and --sources require each other; add the missing one.")
    given = [opts.flag(name) for name, value in others.items() if value is not None]
    if given:
        raise ConfigError(f"--rank does not support {' and '.join(given)}; omit them.")


def _rank(
    groups: Sequence[Group], sources: str, computing: Computing, *, size: int | None, **options: Any
) -> None:
    """Rank the groups on each source, and print the ranks."""
    names = [name.strip() for name in sources.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"--sources must list distinct datasets, got {sources!r}.")
    runs = [run for group in groups for run in group.runs]
    for name in names:
        changes = [run.dataset_overrides(name, size=size) for run in runs]
        check_same_tasks(runs, changes, "test", hint=", or select one size with --size")
    options |= {"size": size, "device": computing.device}
    means: dict[str, list[lazy.evaluation.Evaluation]] = {}
    for name in names:

        def evaluate(
            run: lazy.runs.Run, on_tasks: OnTasks, source: str = name
        ) -> lazy.evaluation.Evaluation:
            return lazy.evaluation.evaluate_once(run, source, on_tasks=on_tasks, **options)

        tasks = f" on {name}"
        means[name] = [group.evaluate(evaluate, computing, tasks=tasks).mean for group in groups]
    ranks = {name: lazy.evaluation.ranks(found) for name, found in means.items()}
    averages = lazy.evaluation.average_ranks(means)
    if computing.as_json:
        content = [
            {
                "run": str(group.path),
                "average_rank": averages[n],
                "sources": {
                    name: {**found[n].as_dict(), "rank": ranks[name][n]}
                    for name, found in means.items()
                },
            }
            for n, group in enumerate(groups)
        ]
        print_json(content)
        return
    rows = []
    for name, found in means.items():
        texts = [figure_text(each).removeprefix("accuracy ") for each in found]
        pairs = zip(texts, ranks[name], strict=True)
        rows.append([name, *(f"{text} ({rank:g})" for text, rank in pairs)])
    rows.append(["average rank", *(f"{average:.2f}" for average in averages)])
    headers = ["source", *(str(group.path) for group in groups)]
    print_table(headers, rows, wraps=headers)
    typer.echo(
        f"\nOver {options['num_tasks']} tasks per source, with 95 % intervals, and (rank). "
        "Runs share a rank if their difference is within the interval of two independent means."
    )
