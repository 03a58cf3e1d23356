"""The paper's settings: what its tables have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ALFA = {"name": "alfa"}
_L2F = {"name": "attenuated", "around": {"name": "learned"}}

# Initialization and update rule of every row (Tables 1, 2, A, B and E).
METHODS: Mapping[str, Mapping[str, Any]] = {
    "random": {"init": {"name": "fixed"}, "rule": {"name": "sgd"}},
    # Section 3.3: a random initialization lacks a prior, so each weight has a decay of its own.
    "alfa+random": {"init": {"name": "fixed"}, "rule": {**_ALFA, "per_parameter_decay": True}},
    "maml": {"init": {"name": "learned"}, "rule": {"name": "sgd"}},
    "alfa+maml": {"init": {"name": "learned"}, "rule": _ALFA},
    "maml+l2f": {"init": _L2F, "rule": {"name": "sgd"}},
    "alfa+maml+l2f": {"init": _L2F, "rule": _ALFA},
}
TITLES = {
    "random": "Random Init",
    "alfa+random": "ALFA + Random Init",
    "maml": "MAML",
    "alfa+maml": "ALFA + MAML",
    "maml+l2f": "MAML + L2F",
    "alfa+maml+l2f": "ALFA + MAML + L2F",
}
BACKBONES = {"conv4": "4-CONV", "resnet12": "ResNet12"}
DATASETS = {
    "miniimagenet": "miniImageNet",
    "tieredimagenet": "tieredImageNet",
    "fc100": "FC100",
    "cifar-fs": "CIFAR-FS",
    "cub": "CUB",
    "omniglot": "Omniglot",
}
# The side of the images that each dataset is prepared with.
SIZES = {
    "miniimagenet": 84,
    "tieredimagenet": 84,
    "fc100": 32,
    "cifar-fs": 32,
    "cub": 84,
    "omniglot": 28,
    # Meta-Dataset's are brought to the size of a model as they are drawn.
    **dict.fromkeys(
        (
            "md-ilsvrc",
            "md-omniglot",
            "md-aircraft",
            "md-birds",
            "md-textures",
            "md-fungi",
            "md-flower",
            "md-traffic-sign",
            "md-mscoco",
        ),
        126,
    ),
    "md-quickdraw": 28,
}
_NUM_VAL_CLASSES = {"miniimagenet": 16, "tieredimagenet": 97, "fc100": 20, "cifar-fs": 16}


def setting(dataset: str, *, way: int, shot: int) -> str:
    """What tasks are called in the name of a cell."""
    return f"{dataset}-{way}w{shot}s"


def classification(
    dataset: str,
    method: Mapping[str, Any],
    *,
    shot: int,
    way: int = 5,
    backbone: str = "conv4",
    num_steps: int = 5,
) -> dict[str, Any]:
    """An experiment after the supplement's section E: 100 epochs of 500 iterations.

    Args:
        dataset: that it is trained on.
        method: its init and rule.
        shot: support images of a class.
        way: classes of a task.
        backbone: of the model.
        num_steps: inner steps.
    """
    attenuated = method["init"]["name"] == "attenuated"
    # 4 tasks for 1-shot, 2 for 5-shot; the published L2F runs of ResNet12 have 2 for both.
    num_tasks = 4 if shot == 1 and not (backbone == "resnet12" and attenuated) else 2
    # 20-way tasks cannot be made of the 16 validation classes of miniImageNet.
    few = {"val_way": _NUM_VAL_CLASSES[dataset]} if way > _NUM_VAL_CLASSES[dataset] else {}
    return {
        "preset": "default",
        "tasks": {
            "name": "images",
            "dataset": dataset,
            "size": SIZES[dataset],
            "way": way,
            "shot": shot,
            "num_query": 15,
            **few,
        },
        "model": {"name": backbone},
        **method,
        "inner": {"num_steps": num_steps},
        "outer": {"num_iterations": 50_000, "num_tasks": num_tasks},
    }
