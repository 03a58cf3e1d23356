"""Measurements of the engine on the machine at hand."""

from alfa.bench.works import WORKS, Work

__all__ = ["WORKS", "Work"]
