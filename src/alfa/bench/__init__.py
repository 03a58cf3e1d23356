"""Measurements of the engine on the machine at hand."""

from alfa.bench.measure import Comparison, compare, rivals_of
from alfa.bench.worker import WorkerError
from alfa.bench.works import WORKS, Work

__all__ = ["WORKS", "Comparison", "Work", "WorkerError", "compare", "rivals_of"]
