"""Run folders: layout, checkpoints, best models, and the model zoo."""

from alfa.runs._backbone import load_backbone, save_backbone
from alfa.runs._best import Epoch, TrainingProgress, load_best, recover_best
from alfa.runs._checkpoint import Checkpoint, load_newest
from alfa.runs._files import RunFiles
from alfa.runs._run import CHECKPOINTS, Run, match_tasks
from alfa.runs._zoo import ModelCard, find_run, model_card, model_names

__all__ = [
    "CHECKPOINTS",
    "Checkpoint",
    "Epoch",
    "ModelCard",
    "Run",
    "RunFiles",
    "TrainingProgress",
    "find_run",
    "load_backbone",
    "load_best",
    "load_newest",
    "match_tasks",
    "model_card",
    "model_names",
    "recover_best",
    "save_backbone",
]
