"""`alfa leaderboard`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alfa.cli.evaluate import Checkpoint
from alfa.cli.train import Device, Json, Threads

if TYPE_CHECKING:
    from alfa.train import Evaluation


def leaderboard(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    sources: Annotated[
        str, typer.Option(help="Datasets to test on, such as `md-omniglot,md-traffic-sign`.")
    ],
    num_tasks: Annotated[int, typer.Option(min=1, help="Tasks of each source.")] = 600,
    checkpoint: Checkpoint = "best",
    seed: Annotated[int, typer.Option(min=0, help="Of the tasks.")] = 0,
    size: Annotated[
        int | None, typer.Option(min=1, help="In which the datasets are prepared.")
    ] = None,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Test runs on several sources, and give each its rank among the others.

    All meet the same tasks. As on Meta-Dataset's leaderboard, runs share a rank where the
    difference of their figures lies within the 95 % interval that the two have together; `alfa
    compare` takes differences task by task, and tells smaller ones. What was tested before is not
    tested again.

    Example:

        alfa leaderboard runs/maml runs/alfa --sources md-omniglot,md-traffic-sign
    """
    from alfa.cli.compare import check_same_tasks, named_errors
    from alfa.cli.evaluate import check_options
    from alfa.cli.progress import meter, show_testing
    from alfa.cli.start import set_up
    from alfa.errors import ConfigError
    from alfa.train import Run, average_ranks, judged_once, on_dataset, ranks

    check_options("test", checkpoint)
    names = [name.strip() for name in sources.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"--sources is {sources!r}, but must name datasets, each once.")
    experiments = [Run(path).experiment() for path in runs]
    # The sources are the same for all; in what else decides the tasks they must agree.
    for name in names:
        elsewhere = [on_dataset(name, size=size, tasks=e.tasks.name) for e in experiments]
        check_same_tasks(runs, elsewhere, "test", hint=", or choose one of them with --size")
    table: dict[str, list[Evaluation]] = {}
    for name in names:
        table[name] = []
        for path, experiment in zip(runs, experiments, strict=True):
            set_up(experiment, device=device, threads=threads)
            title = f"{path.name} on {name}"
            with meter(title, quiet=as_json) as shown, named_errors(path):
                found = judged_once(
                    Run(path),
                    name,
                    size=size,
                    num_tasks=num_tasks,
                    seed=seed,
                    checkpoint=checkpoint,
                    device=device,
                    on_tasks=show_testing(shown),
                )
            table[name].append(found)
    by_source = {name: ranks(found) for name, found in table.items()}
    means = average_ranks(table)
    if as_json:
        content = [
            {
                "run": str(path),
                "average_rank": means[number],
                "sources": {
                    name: {**found[number].as_dict(), "rank": by_source[name][number]}
                    for name, found in table.items()
                },
            }
            for number, path in enumerate(runs)
        ]
        typer.echo(json.dumps(content, indent=2))
        return
    _print(runs, table, by_source, means)


def _print(
    runs: list[Path],
    table: dict[str, list[Evaluation]],
    by_source: dict[str, list[float]],
    means: list[float],
) -> None:
    from rich.markup import escape
    from rich.table import Table

    from alfa.cli.show import figure_text, wide_console

    shown = Table(box=None, pad_edge=False, header_style="bold")
    shown.add_column("source")
    for path in runs:
        shown.add_column(escape(str(path)), justify="right")
    for name, found in table.items():
        cells = [
            f"{figure_text(one).removeprefix('accuracy ')} ({rank:g})"
            for one, rank in zip(found, by_source[name], strict=True)
        ]
        shown.add_row(name, *cells)
    shown.add_row("average rank", *(f"{mean:.2f}" for mean in means))
    console = wide_console()
    console.print(shown, highlight=False)
    count = next(iter(table.values()))[0].num_tasks
    console.print(
        f"\nOver {count} tasks of each source, with 95 % intervals, and ranks in brackets; runs "
        "whose difference lies within their two intervals together share one.",
        highlight=False,
        soft_wrap=True,
    )
