"""`alfa bench`."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Annotated

import typer

from alfa.cli._options import Json

if TYPE_CHECKING:
    from rich.table import Table

    from alfa.bench import Comparison

_LABELS = {
    "plain": "plain",
    "higher": "higher",
    "plain_kept": "plain, kept",
    "higher_kept": "higher, kept",
    "limit": "convolutions alone",
}


def bench(
    workload: Annotated[
        list[str] | None,
        typer.Option(help="The workload to measure; repeat it for several, all by default."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each process.")] = 5,
    as_json: Json = False,
) -> None:
    """Measure the engine on this machine beside plain torch and, if installed, `higher`.

    Two processes take turns, and the best round of each counts. The last row of a workload is the
    limit: its convolutions alone.

    Examples:

        alfa bench

        alfa bench --workload train-32 --workload sinusoid --rounds 10 --json
    """
    from alfa.bench import WORKLOADS, compare, rivals_of
    from alfa.cli.progress import meter
    from alfa.errors import check_choice

    names = workload or list(WORKLOADS)
    for name in names:
        check_choice("--workload", name, WORKLOADS)
    pairs = [(name, rival) for name in names for rival in rivals_of(name)]
    results: dict[str, dict[str, Comparison]] = {name: {} for name in names}
    total, done = 2 * rounds * len(pairs), count(1)
    with meter("bench") as shown:
        for name, rival in pairs:
            shown.tell(f"{name}, alfa and {rival}")
            results[name][rival] = compare(
                name,
                rival,
                rounds=rounds,
                on_round=lambda: shown.update("bench", next(done), total, unit="rounds"),
            )
    if as_json:
        content = {
            name: {rival: comparison.as_dict() for rival, comparison in found.items()}
            for name, found in results.items()
        }
        typer.echo(json.dumps(content, indent=2))
    else:
        _print(results)


def _print(results: dict[str, dict[str, Comparison]]) -> None:
    from rich.console import Console

    from alfa.bench import WORKLOADS

    console = Console()
    for name, found in results.items():
        console.print(
            f"{name}: {WORKLOADS[name].title}", style="bold", highlight=False, soft_wrap=True
        )
        console.print(_table(found))
        if not WORKLOADS[name].train:
            note = "alfa makes no graph here; the others, which have no such mode, train."
            console.print(note, highlight=False, soft_wrap=True)
        console.print()
    console.print(
        "ratio: alfa's speed over that of the row, from the rounds in which these two took turns.\n"
        "alfa: the best of all its rounds, and the most memory.\n"
        "kept: the process keeps the memory of large tensors, as alfa's does.",
        highlight=False,
        soft_wrap=True,
    )


def _table(found: dict[str, Comparison]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    # The same widths for every workload, so that the tables line up.
    table.add_column("engine", no_wrap=True, min_width=max(map(len, _LABELS.values())))
    for header, width in (("it/s", 9), ("ms", 9), ("GB", 6), ("ratio", 7)):
        table.add_column(header, justify="right", no_wrap=True, min_width=width)
    seconds = min(comparison.seconds for comparison in found.values())
    peaks = [comparison.peak for comparison in found.values() if comparison.peak is not None]
    table.add_row("alfa", *_cells(seconds, max(peaks, default=None), 1.0))
    for rival, comparison in found.items():
        cells = _cells(comparison.rival_seconds, comparison.rival_peak, comparison.ratio)
        table.add_row(_LABELS[rival], *cells)
    return table


def _cells(seconds: float, peak: int | None, ratio: float) -> tuple[str, ...]:
    memory = "-" if peak is None else f"{peak / 1e9:.2f}"
    return f"{1 / seconds:.2f}", f"{1e3 * seconds:.1f}", memory, f"{ratio:.2f}x"
