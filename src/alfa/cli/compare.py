"""`alfa compare`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli.progress import meter, show_testing
from alfa.cli.show import figure_text, print_json, print_table, result_text, seeds_text
from alfa.cli.start import Computing, check_same_tasks, task_changes
from alfa.errors import ConfigError, DivergedError


def compare(
    runs: Annotated[list[Path], Argument(help="Runs or seed groups; the first is the reference.")],
    rank: Annotated[bool, Option("--rank", help="Rank the runs on each of --sources.")] = False,
    sources: Annotated[str | None, Option(help="Datasets, as in `md-omniglot,md-flower`.")] = None,
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
        options |= {"num_tasks": num_tasks or 600, "seed": seed or 0}
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

    def evaluate(run: lazy.runs.Run, **options: Any) -> lazy.evaluation.Evaluation:
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
            **options,
        )

    groups = [group.evaluate(evaluate, computing) for group in groups]
    if as_json:
        print_json([_as_dict(group, groups[0]) for group in groups])
    else:
        _print(groups)


@dataclass(frozen=True)
class Group:
    """Runs of several seeds, or one run, and their evaluations on the same tasks."""

    path: Path
    runs: Sequence[lazy.runs.Run]
    evaluations: Sequence[lazy.evaluation.Evaluation] = ()

    @classmethod
    def open(cls, path: Path) -> Group:
        """Open a run, or all runs of a group."""
        folders = [path]
        if not lazy.runs.RunFiles(path).exists:
            seeds = [each for each in path.glob("seed-*") if lazy.runs.RunFiles(each).exists]
            # Shorter numbers are smaller.
            folders = sorted(seeds, key=lambda each: (len(each.name), each.name)) or [path]
        return cls(path, [lazy.runs.Run.open(folder) for folder in folders])

    def evaluate(
        self,
        evaluate: Callable[..., lazy.evaluation.Evaluation],
        computing: Computing,
        *,
        tasks: str = "",
    ) -> Group:
        """Return the group with evaluations, and show the progress; `tasks` names the tasks."""
        evaluations = []
        for run in self.runs:
            computing.set_up(run.experiment)
            with meter(f"{run.path.name}{tasks}", quiet=computing.as_json) as shown:
                try:
                    evaluations.append(evaluate(run, **show_testing(shown)))
                except DivergedError as error:
                    raise DivergedError(f"{run.path}: {error}") from None
        return Group(self.path, self.runs, evaluations)

    @property
    def has_seeds(self) -> bool:
        return len(self.runs) > 1

    def minus(self, reference: Group) -> tuple[lazy.evaluation.Difference, float | None, bool]:
        """The difference over tasks, its interval over seeds, and whether it is significant."""
        over_tasks = lazy.evaluation.difference(self.mean, reference.mean)
        interval = lazy.evaluation.seed_difference_interval(self.figures, reference.figures)
        exceeds_seeds = interval is None or abs(over_tasks.mean) > interval
        return over_tasks, interval, over_tasks.is_decided and exceeds_seeds

    @cached_property
    def mean(self) -> lazy.evaluation.Evaluation:
        """The mean over the runs, with the interval over tasks."""
        return lazy.evaluation.mean_over_seeds(self.evaluations)

    @cached_property
    def figures(self) -> list[float]:
        """The deciding figure of each run."""
        return [each.figure.value for each in self.evaluations]


def _as_dict(group: Group, reference: Group) -> dict[str, Any]:
    over_tasks, seed_interval, is_decided = group.minus(reference)
    content = {
        "run": str(group.path),
        **group.mean.as_dict(),
        "per_task": group.mean.per_task,
        "difference": over_tasks.mean,
        "difference_interval": over_tasks.interval,
        "difference_seed_interval": seed_interval,
        "is_decided": is_decided,
        "seeds": asdict(lazy.evaluation.seed_statistics(group.figures)),
    }
    if group.has_seeds:
        content["runs"] = [
            {"run": str(run.path), **found.as_dict(), "per_task": found.per_task}
            for run, found in zip(group.runs, group.evaluations, strict=True)
        ]
    return content


def _print(groups: Sequence[Group]) -> None:
    is_accuracy = groups[0].mean.figure.is_fraction
    scale, places = (100.0, 2) if is_accuracy else (1.0, 4)
    has_seeds = any(group.has_seeds for group in groups)
    headers = ["run", "figure", *(["over seeds"] if has_seeds else [])]
    intervals_of = " (+- tasks, seeds)" if has_seeds else ""
    headers += [f"minus {groups[0].path}{intervals_of}", ""] * (len(groups) > 1)
    rows = []
    for group in groups:
        over_tasks, seed_interval, is_decided = group.minus(groups[0])
        cells = [str(group.path), figure_text(group.mean)]
        if has_seeds:
            statistics = lazy.evaluation.seed_statistics(group.figures)
            cells.append(seeds_text(statistics, is_accuracy) if group.has_seeds else "-")
        if group is not groups[0]:
            intervals = [over_tasks.interval, *([seed_interval] if has_seeds else [])]
            texts = ["?" if x is None else f"{scale * x:.{places}f}" for x in intervals]
            cells.append(f"{scale * over_tasks.mean:+.{places}f} +- {', '.join(texts)}")
            cells.append("significant" if is_decided else "not significant")
        rows.append(cells)
        if group.has_seeds:
            for run, found in zip(group.runs, group.evaluations, strict=True):
                rows.append([f"  {run.path.name}", figure_text(found)])
    print_table(headers, rows, wraps=headers)
    typer.echo(f"\n{_explanation(groups, over_tasks.fewest_tasks)}")


def _explanation(groups: Sequence[Group], min_tasks: int) -> str:
    first, has_seeds = groups[0].mean, [group.has_seeds for group in groups]
    text = f"Over the same {first.num_tasks} {first.split} tasks, with 95 % intervals over tasks"
    text += " and over seeds." if any(has_seeds) else "."
    if len(groups) > 1:
        text += " Significant: the difference exceeds the interval over tasks"
        text += " and the interval over seeds." if all(has_seeds) else "; other seeds may differ."
        if first.num_tasks < min_tasks:
            text += f" No difference is significant with fewer than {min_tasks} tasks."
    return text + ("" if first.figure.larger_is_better else " For losses, lower is better.")


def _check_rank_options(rank: bool, sources: str | None, others: dict[str, Any]) -> None:
    if not rank or sources is None:
        raise ConfigError("--rank and --sources require each other; add the missing one.")
    given = [opts.flag(name) for name, value in others.items() if value is not None]
    if given:
        raise ConfigError(f"--rank does not support {' and '.join(given)}; omit them.")


def _rank(
    groups: Sequence[Group], sources: str, computing: Computing, *, size: int | None, **options: Any
) -> None:
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
        evaluate = partial(lazy.evaluation.evaluate_once, dataset=name, **options)
        tested = [group.evaluate(evaluate, computing, tasks=f" on {name}") for group in groups]
        means[name] = [group.mean for group in tested]
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
        pairs = zip(found, ranks[name], strict=True)
        rows.append([name, *(f"{result_text(vars(each))} ({rank:g})" for each, rank in pairs)])
    rows.append(["average rank", *(f"{average:.2f}" for average in averages)])
    headers = ["source", *(str(group.path) for group in groups)]
    print_table(headers, rows, wraps=headers)
    typer.echo(
        f"\nOver {options['num_tasks']} tasks per source, with 95 % intervals, and (rank). "
        "Runs share a rank if their difference is within the interval of two independent means."
    )
