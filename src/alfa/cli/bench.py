"""`alfa bench`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Annotated

import typer
from typer import Option

from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli.progress import meter
from alfa.cli.show import print_json, print_table
from alfa.errors import check_choice

_LABELS = {
    "plain_kept": "plain, kept",
    "higher_kept": "higher, kept",
    "limit": "convolutions alone",
}


def bench(
    workload: Annotated[list[str] | None, Option(help="Only these workloads.")] = None,
    rounds: Annotated[int, Option(min=1, help="Rounds per process.")] = 5,
    as_json: opts.Json = False,
) -> None:
    """Compare the engine's speed on this machine with plain torch and, if installed, `higher`.

    Two processes take turns, and the best round of each counts. The last row of a workload is a
    limit: its convolutions alone.

    Examples:

        alfa bench
        alfa bench --workload train-32 --workload sinusoid --rounds 10 --json
    """
    names = workload or list(lazy.bench.WORKLOADS)
    for name in names:
        check_choice("--workload", name, lazy.bench.WORKLOADS)
    pairs = [(name, rival) for name in names for rival in lazy.bench.rivals_of(name)]
    results: dict[str, dict[str, lazy.bench.Comparison]] = {name: {} for name in names}
    total, done = 2 * rounds * len(pairs), count(1)
    with meter("bench") as shown:
        for name, rival in pairs:
            shown.print(f"{name}, alfa and {rival}")
            results[name][rival] = lazy.bench.compare(
                name,
                rival,
                rounds=rounds,
                on_round=lambda: shown.update("bench", next(done), total, unit="rounds"),
            )
    if as_json:
        print_json(
            {name: {key: each.as_dict() for key, each in results[name].items()} for name in names}
        )
    else:
        _print(results)


def _print(results: dict[str, dict[str, lazy.bench.Comparison]]) -> None:
    for name, found in results.items():
        workload = lazy.bench.WORKLOADS[name]
        typer.secho(f"{name}: {workload.title}", bold=True)
        print_table(["engine", "it/s", "ms", "GB", "ratio"], _rows(found))
        if not workload.train:
            typer.echo("alfa builds no graph here; the others lack this mode, and train.")
        typer.echo("")
    typer.echo(
        "ratio: alfa's speed divided by the row's, from the rounds in which the two took turns.\n"
        "alfa: the best of all its rounds, and its highest memory use.\n"
        "kept: the process keeps the memory of large tensors, as alfa's does."
    )


def _rows(found: dict[str, lazy.bench.Comparison]) -> Iterator[list[str]]:
    best = min(each.seconds for each in found.values())
    highest = max((each.peak for each in found.values() if each.peak is not None), default=None)
    rows = [("alfa", best, highest, 1.0)]
    rows += [
        (name, each.rival_seconds, each.rival_peak, each.ratio) for name, each in found.items()
    ]
    # Every workload's table has the same column widths.
    width = max(map(len, _LABELS.values()))
    for name, seconds, peak, ratio in rows:
        memory = "-" if peak is None else f"{peak / 1e9:.2f}"
        cells = [f"{1 / seconds:9.2f}", f"{1e3 * seconds:9.1f}", f"{memory:>6}", f"{ratio:6.2f}x"]
        yield [f"{_LABELS.get(name, name):{width}}", *cells]
