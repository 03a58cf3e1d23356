"""Build objects from a configuration, and describe objects as a configuration."""

from alfa.build._build import (
    build_learner,
    build_model,
    build_objective,
    build_tasks,
    trainer_options,
)
from alfa.build._describe import describe_experiment
from alfa.build._image_folder import (
    DEFAULT_BACKBONE,
    ImageFolder,
    choose_backbone,
    describe_counts,
    experiment_for,
    scan_image_folder,
    title_of,
    training_advice,
    usable_counts,
)

__all__ = [
    "DEFAULT_BACKBONE",
    "ImageFolder",
    "build_learner",
    "build_model",
    "build_objective",
    "build_tasks",
    "choose_backbone",
    "describe_counts",
    "describe_experiment",
    "experiment_for",
    "scan_image_folder",
    "title_of",
    "trainer_options",
    "training_advice",
    "usable_counts",
]
