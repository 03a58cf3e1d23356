"""Run folders: layout, checkpoints, and best models."""

from alfa.runs._backbone import load_backbone, save_backbone, with_backbone
from alfa.runs._best import Epoch, TrainingProgress, load_best, recover_best
from alfa.runs._checkpoint import Checkpoint, load_newest
from alfa.runs._files import RunFiles
from alfa.runs._run import CHECKPOINTS, Run, match_tasks

__all__ = [
    "CHECKPOINTS",
    "Checkpoint",
    "Epoch",
    "Run",
    "RunFiles",
    "TrainingProgress",
    "load_backbone",
    "load_best",
    "load_newest",
    "match_tasks",
    "recover_best",
    "save_backbone",
    "with_backbone",
]
