"""Measurements of the engine on the machine at hand."""

from alfa.bench.measure import Comparison, compare, rivals_of
from alfa.bench.works import WORKS, Work

__all__ = ["WORKS", "Comparison", "Work", "compare", "rivals_of"]
