"""Pages on the paper's tables, docs/tables/*.md.

    python tools/pages.py keep RUN...   copies the text files of complete runs to docs/results/runs
    python tools/pages.py write         generates the pages

A test compares the pages with the output of `write`.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from alfa._io import write_atomic
from alfa.cli.progress import duration_text
from alfa.paper import SIZES, TABLES, Collection, Table, collect, comparison_grid
from alfa.report.tables import markdown

RUNS = Path("docs/results/runs")
COSTS = Path("docs/results/costs.json")
PAGES = Path("docs/tables")
KEPT = ("config.toml", "metrics.jsonl", "result.json", "signature.json")


def keep(runs: Sequence[Path]) -> None:
    for run in runs:
        if not (run / "result.json").is_file() or run.is_absolute() or "runs" not in run.parts:
            sys.exit(f"{run} must be a complete run, as a relative path below a folder `runs`.")
        folder = RUNS.joinpath(*run.parts[run.parts.index("runs") + 1 :])
        for file in [*(run / name for name in KEPT), *run.glob("tests/*.json")]:
            if file.is_file():
                to = folder / file.relative_to(run)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, to)


def write() -> None:
    PAGES.mkdir(exist_ok=True)
    for name, text in pages().items():
        write_atomic(PAGES / name, text.encode())


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    collection = collect([RUNS], TABLES.values())
    costs = json.loads(COSTS.read_text()) if COSTS.is_file() else {"models": {}}
    texts = {f"{name}.md": _page(table, collection, costs) for name, table in TABLES.items()}
    return {"README.md": _index(collection), **texts}


def _index(collection: Collection) -> str:
    rows = []
    for name, table in TABLES.items():
        measured = comparison_grid(table, collection, links_from=PAGES.resolve()).num_measured
        count = len(table.cells)
        rows.append([f"[{table.label}]({name}.md)", table.title, str(count), str(measured)])
    return f"""# The paper's tables

The tables of *Meta-Learning with Adaptive Hyperparameters* (Baik et al., NeurIPS 2020) and its
supplement, with the commands that reproduce them, their cost, and our results. The command
`python tools/pages.py write` generates these pages from `alfa.paper`.

{_table(["table", "content", "cells to run", "measured figures"], rows)}

Some figures appear in several tables, so a table can have more measured figures than cells.
"""


def _page(table: Table, collection: Collection, costs: Mapping[str, Any]) -> str:
    grid = comparison_grid(table, collection, links_from=PAGES.resolve())
    heading, _, body = markdown(grid).partition("\n")
    about, *others = body.strip().split("\n\n")
    # The legend is missing if no figure was measured, and not every table has footnotes.
    place = next(index for index, part in enumerate(others) if part.startswith("|"))
    legend, figures = others[:place], others[place:]
    parts = [heading.removeprefix("#"), about, *_commands(table), *_cost(table, costs)]
    note = (
        " ".join([*legend, "`docs/results/runs` contains the runs."])
        if grid.num_measured
        else "Published results; none has been measured here yet."
    )
    parts += ["## Figures", note, *figures]
    return (
        "\n\n".join(
            part if part[0] in "#`|" else fill(part, 100, break_on_hyphens=False) for part in parts
        )
        + "\n"
    )


def _commands(table: Table) -> list[str]:
    cells = list(table.cells)
    if not cells:
        return []
    example = next(row for (row, _), entry in table.entries.items() if entry is cells[-1])
    commands = {
        f"alfa reproduce {table.name}": "the whole table",
        f"alfa reproduce {table.name} --dry-run": "estimate time and memory on this machine",
        f"alfa reproduce {table.name} --rows {example}": "one row",
        f"alfa report --table {table.name}": "compare your runs with the paper",
    }
    width = max(map(len, commands))
    lines = [f"{command:{width}}  # {purpose}" for command, purpose in commands.items()]
    parts = [
        "## Commands",
        "```\n" + "\n".join(lines) + "\n```",
        f"The option `--list` lists the {len(cells)} cells, `--iterations 6000` shortens "
        "training, and `--seeds 3` trains with three seeds.",
    ]
    datasets = dict.fromkeys(name for cell in cells for name in cell.datasets)
    if datasets:
        sizes = ", ".join(f"{name} ({SIZES[name]} x {SIZES[name]})" for name in datasets)
        parts.append(
            f"Datasets and image sizes: {sizes}. `alfa data prepare NAME PATH --size SIZE` "
            "prepares a dataset. `alfa data download NAME` downloads it or describes the manual "
            "download."
        )
    return parts


def _cost(table: Table, costs: Mapping[str, Any]) -> list[str]:
    """Describe time and memory of the measured models."""
    cells = {cell.run: cell for cell in table.cells}
    known = {run: costs["models"][run] for run in cells if run in costs["models"]}
    if not known:
        return []
    # Times of different machines are not comparable, so the machine is marked.
    machines = list(dict.fromkeys(found["machine"] for found in known.values()))
    rows = [
        [
            run + "*" * machines.index(found["machine"]),
            f"{cells[run].experiment.outer.num_iterations:,}" if found["trains"] else "-",
            duration_text(found["seconds"] - found["pretraining"]),
            f"{found['memory'] / 1e9:.1f} GB",
            found["mode"] or "-",
        ]
        for run, found in known.items()
    ]
    if pretraining := sum(found["pretraining"] for found in known.values()):
        rows.append(["pretraining of the backbone", "-", duration_text(pretraining), "-", "-"])
    total = duration_text(sum(found["seconds"] for found in known.values()))
    if len(known) < len(cells):
        total += f" for {len(known)} of {len(cells)} models; the others have not been measured"
    others = "".join(
        f" Models with {'*' * number} were measured on {machine}; do not compare their times with "
        "the others."
        for number, machine in enumerate(machines[1:], start=1)
    )
    return [
        "## Cost",
        "The costs are estimates for one seed, based on measurements (`python benchmarks/costs.py "
        f"run`) on {machines[0]}.{others} They include all tests of a model, even tests for other "
        "tables. Total time: "
        f"{total}. If memory is short, the mode `recompute` stores only the weights of each inner "
        "step and recomputes the rest.",
        _table(["model", "iterations", "time", "memory", "mode"], rows),
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write"]:
            write()
        case ["keep", *runs] if runs:
            keep([Path(run) for run in runs])
        case _:
            sys.exit(__doc__)
