"""From a configuration to objects."""

from alfa.build._build import build_learner, build_model, build_tasks, trainer_options
from alfa.build._describe import describe_experiment
from alfa.build._image_folder import (
    OwnData,
    contents,
    counts_of,
    experiment_for,
    survey,
    title_of,
    worth,
)

__all__ = [
    "OwnData",
    "build_learner",
    "build_model",
    "build_tasks",
    "contents",
    "counts_of",
    "describe_experiment",
    "experiment_for",
    "survey",
    "title_of",
    "trainer_options",
    "worth",
]
