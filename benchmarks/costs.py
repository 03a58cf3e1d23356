"""Cost of the models in the paper's tables.

    python benchmarks/costs.py run [TABLE...]   measures the models of some tables (default: all)

The command skips models that docs/results/costs.json contains. It can be interrupted and resumed.
`python tools/pages.py write` shows the costs in docs/tables.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from _common import choose

from alfa._io import write_atomic
from alfa._runtime import usable_cpus
from alfa.cli.start import Computing
from alfa.paper import TABLES, Job, estimate, plan_jobs

COSTS = Path("docs/results/costs.json")
# Measurements so far, so that an interrupted command can continue.
SPEEDS = Path("runs/speeds")


def run(*names: str) -> None:
    if unknown := set(names) - set(TABLES):
        sys.exit(f"Unknown table {', '.join(sorted(unknown))}; known: {', '.join(TABLES)}.")
    SPEEDS.mkdir(parents=True, exist_ok=True)
    known = json.loads(COSTS.read_text())["models"] if COSTS.is_file() else {}
    wanted = {cell.run for name in names or TABLES for cell in TABLES[name].cells} - known.keys()
    cells = [cell for table in TABLES.values() for cell in table.cells if cell.run in wanted]
    # The folder contains no runs, so nothing counts as completed.
    jobs = plan_jobs(cells, SPEEDS)

    def before(job: Job) -> None:
        Computing().set_up(job.experiment)
        print(job.run, flush=True)

    found = estimate(jobs, SPEEDS, before=before)
    capability = torch.backends.cpu.get_cpu_capability()
    machine = f"{usable_cpus()} CPU cores ({capability}), torch {torch.__version__}"
    new = {job.run: {**asdict(found[job.name]), "machine": machine} for job in jobs}
    content = {"models": {**known, **new}}
    write_atomic(COSTS, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())


if __name__ == "__main__":
    choose(__doc__, run)
