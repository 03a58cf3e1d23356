"""`alfa bench`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from alfa.cli.train import Json

if TYPE_CHECKING:
    from alfa.bench import Comparison


def bench(
    work: Annotated[
        list[str] | None,
        typer.Option(help="A piece of work to measure, several times for several; all by default."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that each process takes.")] = 5,
    as_json: Json = False,
) -> None:
    """Measure the engine on this machine, beside the plain way and, where installed, `higher`.

    Two processes take turns, never at once; the best round of each counts. The limit is the time
    of the convolutions alone.

    Examples:

        alfa bench

        alfa bench --work train-32 --work sinusoid --rounds 10 --json
    """
    from rich.console import Console

    from alfa.bench import WORKS, compare, rivals_of
    from alfa.cli.show import progress_bars
    from alfa.errors import check_choice

    works = work or list(WORKS)
    for name in works:
        check_choice("--work", name, WORKS)
    pairs = [(name, rival) for name in works for rival in rivals_of(name)]
    results: dict[str, dict[str, Comparison]] = {name: {} for name in works}
    console = Console(stderr=True)
    with progress_bars(console) as bars:
        bar = bars.add_task("rounds", total=2 * rounds * len(pairs), note="")
        for name, rival in pairs:
            bars.update(bar, note=f"{name}, alfa and {rival}")
            results[name][rival] = compare(
                name, rival, rounds=rounds, on_round=lambda: bars.advance(bar)
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
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("work", no_wrap=True)
    for header in ("it/s", "GB", "plain", "higher", "plain*", "higher*", "limit"):
        table.add_column(header, justify="right", no_wrap=True)
    for name, found in results.items():
        seconds = min(comparison.seconds for comparison in found.values())
        peak = max(comparison.peak for comparison in found.values())
        ratios = [
            f"{found[rival].ratio:.2f}x" if rival in found else "-"
            for rival in ("plain", "higher", "plain_kept", "higher_kept")
        ]
        limit = f"{1 / found['limit'].ratio:.2f}" if "limit" in found else "-"
        table.add_row(name, f"{1 / seconds:.2f}", f"{peak / 1e9:.2f}", *ratios, limit)
    console = Console()
    console.print(table)
    console.print(
        "\nplain, higher: how many times alfa's time an iteration takes there; with * where that "
        "process keeps its memory, too.\nlimit: alfa's time over that of its convolutions alone.",
        highlight=False,
        soft_wrap=True,
    )
