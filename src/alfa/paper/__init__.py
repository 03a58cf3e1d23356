"""The paper's tables: every figure, and the experiment that measures it.

Baik et al., Meta-Learning with Adaptive Hyperparameters, NeurIPS 2020.
"""

from alfa.paper._cell_status import State, cell_status, measurement
from alfa.paper._compare import Collection, FoundRun, collect, comparison_grid, relative_link
from alfa.paper._estimate import Cost, estimate
from alfa.paper._experiments import SIZES, classification
from alfa.paper._job import Job, plan_jobs
from alfa.paper._parallel import LocalWorkers, Workers, run_parallel
from alfa.paper._ray import RayWorkers
from alfa.paper._reproduce import JobResult, reproduce
from alfa.paper._table import Cell, Quoted, Table, select
from alfa.paper._tables import TABLES

__all__ = [
    "SIZES",
    "TABLES",
    "Cell",
    "Collection",
    "Cost",
    "FoundRun",
    "Job",
    "JobResult",
    "LocalWorkers",
    "Quoted",
    "RayWorkers",
    "State",
    "Table",
    "Workers",
    "cell_status",
    "classification",
    "collect",
    "comparison_grid",
    "estimate",
    "measurement",
    "plan_jobs",
    "relative_link",
    "reproduce",
    "run_parallel",
    "select",
]
