"""The paper's tables: every figure, and the experiment that measures it.

Baik et al., Meta-Learning with Adaptive Hyperparameters, NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Mapping

from alfa.paper._base import Cell, Figure, Line, Quoted, Table
from alfa.paper._collect import Collection, FoundRun, collect
from alfa.paper._compare import curves_of, lay_out, link
from alfa.paper._estimate import Cost, estimate
from alfa.paper._job import Job, plan_jobs
from alfa.paper._reproduce import Outcome, reproduce
from alfa.paper._select import select
from alfa.paper._spread import LocalWorkers, Workers, spread
from alfa.paper._state import Measured, State, look, measured
from alfa.paper._table1 import TABLE_1, TABLE_C
from alfa.paper._table2 import TABLE_2, TABLE_E
from alfa.paper._table3 import TABLE_3, TABLE_D
from alfa.paper._table4 import TABLE_4
from alfa.paper._table5 import TABLE_5
from alfa.paper._table6 import TABLE_6
from alfa.paper._table7 import TABLE_7
from alfa.paper._table8 import TABLE_8
from alfa.paper._table_a import TABLE_A
from alfa.paper._table_b import TABLE_B

_ALL = (
    *(TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5, TABLE_6, TABLE_7, TABLE_8),
    *(TABLE_A, TABLE_B, TABLE_C, TABLE_D, TABLE_E),
)
TABLES: Mapping[str, Table] = {table.name: table for table in _ALL}

__all__ = [
    "TABLES",
    "Cell",
    "Collection",
    "Cost",
    "Figure",
    "FoundRun",
    "Job",
    "Line",
    "LocalWorkers",
    "Measured",
    "Outcome",
    "Quoted",
    "State",
    "Table",
    "Workers",
    "collect",
    "curves_of",
    "estimate",
    "lay_out",
    "link",
    "look",
    "measured",
    "plan_jobs",
    "reproduce",
    "select",
    "spread",
]
