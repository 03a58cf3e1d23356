"""What an experiment is, and what is wrong with it.

An experiment is read from TOML, changed by ``key=value`` overrides, and checked as a whole:
all faults are reported at once, each in one sentence.
"""

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
