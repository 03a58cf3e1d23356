"""`alfa compare --rank`: ranks of runs on several datasets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table

from alfa.cli._groups import Group, OnTasks, evaluate_group, open_group
from alfa.cli._tasks import check_same_tasks
from alfa.cli.show import figure_text, wide_console
from alfa.errors import ConfigError
from alfa.evaluation import Evaluation, average_ranks, evaluate_once, ranks
from alfa.runs import Run


def rank_runs(
    paths: Sequence[Path],
    sources: str,
    *,
    size: int | None,
    num_tasks: int,
    seed: int,
    checkpoint: str,
    device: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Rank runs, or groups of runs, on each source, and print the ranks."""
    names = [name.strip() for name in sources.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"--sources is {sources!r}, but must name datasets, each once.")
    groups = [open_group(path) for path in paths]
    runs = [run for group in groups for run in group]
    for name in names:
        changes = [run.dataset_overrides(name, size=size) for run in runs]
        check_same_tasks(runs, changes, "test", hint=", or choose one of them with --size")
    table: dict[str, list[Group]] = {}
    for name in names:

        def evaluate(run: Run, on_tasks: OnTasks, name: str = name) -> Evaluation:
            return evaluate_once(
                run,
                name,
                size=size,
                num_tasks=num_tasks,
                seed=seed,
                checkpoint=checkpoint,
                device=device,
                on_tasks=on_tasks,
            )

        options = {"where": f" on {name}", "device": device, "threads": threads, "quiet": as_json}
        table[name] = [
            evaluate_group(path, group, evaluate, **options)  # type: ignore[arg-type]
            for path, group in zip(paths, groups, strict=True)
        ]
    means = {name: [group.mean for group in found] for name, found in table.items()}
    by_source = {name: ranks(found) for name, found in means.items()}
    if as_json:
        content = [
            {
                "run": str(path),
                "average_rank": average,
                "sources": {
                    name: {**found[number].as_dict(), "rank": by_source[name][number]}
                    for name, found in means.items()
                },
            }
            for number, (path, average) in enumerate(zip(paths, average_ranks(means), strict=True))
        ]
        typer.echo(json.dumps(content, indent=2))
    else:
        _print(paths, means, by_source)


def _print(
    paths: Sequence[Path],
    means: Mapping[str, Sequence[Evaluation]],
    by_source: Mapping[str, Sequence[float]],
) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("source")
    for path in paths:
        table.add_column(escape(str(path)), justify="right")
    for name, found in means.items():
        cells = [
            f"{figure_text(one).removeprefix('accuracy ')} ({rank:g})"
            for one, rank in zip(found, by_source[name], strict=True)
        ]
        table.add_row(name, *cells)
    table.add_row("average rank", *(f"{mean:.2f}" for mean in average_ranks(means)))
    console = wide_console()
    console.print(table, highlight=False)
    count = next(iter(means.values()))[0].num_tasks
    console.print(
        f"\nOver {count} tasks of each source, with 95 % intervals, and ranks in parentheses; runs "
        "share a rank if their difference is within the interval of two independent means.",
        highlight=False,
        soft_wrap=True,
    )
