"""Experiments: read from TOML, change by ``key=value`` overrides, and validate as a whole."""

from alfa.config._compose import Choices, compose, compose_for_folder, datasets
from alfa.config._experiment import Engine, Experiment, Inner, Outer, Part, Test, differing, to_dict
from alfa.config._parts import options_of
from alfa.config._read import load_experiment, parse_experiment

__all__ = [
    "Choices",
    "Engine",
    "Experiment",
    "Inner",
    "Outer",
    "Part",
    "Test",
    "compose",
    "compose_for_folder",
    "datasets",
    "differing",
    "load_experiment",
    "options_of",
    "parse_experiment",
    "to_dict",
]
