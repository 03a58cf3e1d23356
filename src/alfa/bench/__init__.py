"""Measurements of the engine on this machine."""

from alfa.bench.measure import Comparison, compare, rivals_of
from alfa.bench.worker import WorkerError
from alfa.bench.workloads import WORKLOADS, Workload

__all__ = ["WORKLOADS", "Comparison", "WorkerError", "Workload", "compare", "rivals_of"]
