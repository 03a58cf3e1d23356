"""The pages on the paper's tables, docs/tables/*.md, written from the registry of cells.

    python benchmarks/pages.py keep RUN...   keeps the text files of complete runs in docs/results
    python benchmarks/pages.py cost TABLE... measures what the models of some tables, or of all,
                                             cost on this machine, unless docs/results/costs.json
                                             has it, and keeps it; can be stopped and started again
    python benchmarks/pages.py write         writes the pages

A test holds the pages against what `write` would write.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any

import torch
from _common import choose
from _common import table as table_of

from alfa._io import write_atomic
from alfa._runtime import usable_cpus
from alfa.cli.progress import duration_text
from alfa.cli.start import set_up
from alfa.paper import (
    SIZES,
    TABLES,
    Collection,
    Job,
    Table,
    collect,
    comparison_grid,
    estimate,
    plan_jobs,
)
from alfa.report.tables import markdown

RUNS = Path("docs/results/runs")
COSTS = Path("docs/results/costs.json")
PAGES = Path("docs/tables")
# What was measured so far, where a stopped measurement goes on.
SPEEDS = Path("runs/speeds")
KEPT = ("config.toml", "metrics.jsonl", "result.json", "signature.json")


def keep(*runs: str) -> None:
    if not runs:
        sys.exit(__doc__)
    for run in map(Path, runs):
        if not (run / "result.json").is_file() or run.is_absolute() or "runs" not in run.parts:
            sys.exit(f"{run} is not a complete run, given by its path from here, below a `runs`.")
        folder = RUNS.joinpath(*run.parts[run.parts.index("runs") + 1 :])
        for file in [*(run / name for name in KEPT), *run.glob("tests/*.json")]:
            if file.is_file():
                to = folder / file.relative_to(run)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, to)


def cost(*names: str) -> None:
    if unknown := set(names) - set(TABLES):
        sys.exit(f"{', '.join(sorted(unknown))}: none of {', '.join(TABLES)}.")
    SPEEDS.mkdir(parents=True, exist_ok=True)
    known = json.loads(COSTS.read_text())["models"] if COSTS.is_file() else {}
    wanted = {cell.run for name in names or TABLES for cell in TABLES[name].cells} - known.keys()
    cells = [cell for table in TABLES.values() for cell in table.cells if cell.run in wanted]
    # The folder holds no runs, so that the cost is that of everything.
    jobs = plan_jobs(cells, SPEEDS)

    def before(job: Job) -> None:
        set_up(job.experiment, device="cpu", threads=None)
        print(job.run, flush=True)

    found = estimate(jobs, SPEEDS, before=before)
    able = torch.backends.cpu.get_cpu_capability()
    machine = f"{usable_cpus()} CPU cores ({able}), torch {torch.__version__}"
    new = {job.run: {**asdict(found[job.name]), "machine": machine} for job in jobs}
    content = {"models": {**known, **new}}
    write_atomic(COSTS, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())


def write() -> None:
    PAGES.mkdir(exist_ok=True)
    for name, text in pages().items():
        write_atomic(PAGES / name, text.encode())


def pages() -> dict[str, str]:
    """The text of every page by its name."""
    collection = collect([RUNS], TABLES.values())
    costs = json.loads(COSTS.read_text()) if COSTS.is_file() else {"models": {}}
    texts = {f"{name}.md": page(table, collection, costs) for name, table in TABLES.items()}
    return {"README.md": index(collection), **texts}


def index(collection: Collection) -> str:
    rows = []
    for name, table in TABLES.items():
        measured = comparison_grid(table, collection, links_from=PAGES.resolve()).num_measured
        count = len(table.cells)
        rows.append([f"[{table.label}]({name}.md)", table.title, str(count), str(measured)])
    return f"""# The paper's tables

Every figure of *Meta-Learning with Adaptive Hyperparameters* (Baik et al., NeurIPS 2020) and its
supplement, the command that measures it, and what was measured. These pages are written from
`alfa.paper` by `python benchmarks/pages.py write`.

{chr(10).join(table_of(["", "", "cells to run", "places measured"], rows))}
A table may repeat another one's cells, so more places can be measured than it has cells; Tables C
and D have none of their own.
"""


def page(table: Table, collection: Collection, costs: Mapping[str, Any]) -> str:
    grid = comparison_grid(table, collection, links_from=PAGES.resolve())
    heading, _, body = markdown(grid).partition("\n")
    # Between them, where something was measured, how to read it.
    about, *legend, figures = body.strip().split("\n\n")
    parts = [heading.removeprefix("#"), about, *commands(table), *cost_of(table, costs)]
    told = (
        " ".join([*legend, "The runs are in [docs/results/runs](../results/runs)."])
        if grid.num_measured
        else "Published figures; none was measured yet."
    )
    parts += ["## Figures", told, figures]
    return (
        "\n\n".join(
            part if part[0] in "#`|" else fill(part, 100, break_on_hyphens=False) for part in parts
        )
        + "\n"
    )


def commands(table: Table) -> list[str]:
    runnable = list(table.cells)
    if not runnable:
        return []
    lines = [f"alfa reproduce {table.name}", f"alfa reproduce {table.name} --dry-run"]
    example = runnable[-1]
    row = next(row for (row, _), entry in table.entries.items() if entry is example)
    lines.append(f"alfa reproduce {table.name} --rows {row}")
    lines.append(f"alfa report --table {table.name}")
    told = [
        "## Commands",
        "```\n" + "\n".join(lines) + "\n```",
        "All of it; what that would cost here; one row of it; and the report. `--list` shows the "
        f"{len(table.cells)} cells, `--iterations 6000` trains for less, `--seeds 3` three times.",
    ]
    datasets = dict.fromkeys(name for cell in runnable for name in cell.datasets)
    if datasets:
        sizes = ", ".join(f"{name} ({SIZES[name]} x {SIZES[name]})" for name in datasets)
        told.append(
            f"Needs the prepared datasets {sizes}: `alfa data prepare NAME PATH --size SIDE` makes "
            "one, and `alfa data download NAME` fetches it, or says what to fetch by hand."
        )
    return told


def cost_of(table: Table, costs: Mapping[str, Any]) -> list[str]:
    """Time and memory of the models, as far as they were measured."""
    cells = {cell.run: cell for cell in table.cells}
    known = {run: costs["models"][run] for run in cells if run in costs["models"]}
    if not known:
        return []
    # How fast others are says nothing about these, so that they are told apart.
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
        rows.append(
            ["the backbone that they begin with", "-", duration_text(pretraining), "-", "-"]
        )
    total = duration_text(sum(found["seconds"] for found in known.values()))
    if len(known) < len(cells):
        total += f" for {len(known)} of {len(cells)} models; the others were not measured yet"
    else:
        total += " in all"
    on = machines[0] + "".join(
        f", or where there is a {'*' * number}, on a machine with {machine}"
        for number, machine in enumerate(machines[1:], start=1)
    )
    if machines[1:]:
        total += "; times of different machines cannot be held against each other"
    return [
        "## Cost",
        "Of training from one seed and of all tests of a model, those for other tables among "
        f"them; estimated from what was measured on {on} (`python "
        f"benchmarks/pages.py cost`); {total}. Memory is that of the process; where there "
        "is little, an iteration keeps its weights only and is computed once more (`recompute`).",
        "\n".join(table_of(["model", "iterations", "time", "memory", "mode"], rows)).strip(),
    ]


if __name__ == "__main__":
    choose(__doc__, keep, cost, write)
