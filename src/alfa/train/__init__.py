"""The outer loop, evaluation, and run folders."""

from alfa.train.checkpoint import Checkpoint
from alfa.train.compare import Difference, difference
from alfa.train.distributed import ALONE, Processes, joined
from alfa.train.evaluate import Evaluation, evaluate, judged_tasks
from alfa.train.judge import judge, on_dataset, reopen
from alfa.train.launched import (
    check_cards,
    is_launched,
    is_one_of_many,
    is_restarted,
    launch_name,
)
from alfa.train.leaderboard import average_ranks, judged_once, ranks
from alfa.train.pretrain import Epoch, Pretraining, pretrain
from alfa.train.progress import Progress, Work
from alfa.train.run import Run
from alfa.train.trainer import train
from alfa.train.weights import load_backbone, save_backbone

__all__ = [
    "ALONE",
    "Checkpoint",
    "Difference",
    "Epoch",
    "Evaluation",
    "Pretraining",
    "Processes",
    "Progress",
    "Run",
    "Work",
    "average_ranks",
    "check_cards",
    "difference",
    "evaluate",
    "is_launched",
    "is_one_of_many",
    "is_restarted",
    "joined",
    "judge",
    "judged_once",
    "judged_tasks",
    "launch_name",
    "load_backbone",
    "on_dataset",
    "pretrain",
    "ranks",
    "reopen",
    "save_backbone",
    "train",
]
