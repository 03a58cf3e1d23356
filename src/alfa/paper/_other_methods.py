"""The experiments behind the figures that the paper quotes from other work.

The settings are those that the authors of a method or their published code state; where neither
states one, the cell has the value of the recipe. docs/differences.md lists the deviations.
"""

from collections.abc import Callable, Mapping
from typing import Any

from alfa.methods import METHODS, merge
from alfa.paper._experiments import META_DATASET_SIZE, classification

# The backbones of other methods, by their names in cell ids.
BACKBONES: Mapping[str, Mapping[str, Any]] = {
    "conv4-32": {"name": "conv4", "filters": 32},
    "conv4-64": {"name": "conv4", "filters": 64},
    "conv4-64-96-128-256": {"name": "conv4", "filters": [64, 96, 128, 256]},
    "resnet12": {"name": "resnet12"},
    "resnet12-wide": {"name": "resnet12-wide"},
    "wrn-28-10": {"name": "wrn-28-10"},
}
_Sections = dict[str, dict[str, Any]]


def other_method(dataset: str, method: str, *, shot: int, backbone: str) -> dict[str, Any]:
    """Return the experiment of a method with its published settings."""
    content = classification(dataset, method, shot=shot, model=BACKBONES[backbone])
    # Other methods have one task per iteration, unless their settings state another number.
    defaults = {"outer": {"num_tasks": 1}, "test": {"ensemble": 1}}
    return merge(merge(content, defaults), _SETTINGS[method](dataset, shot))


def depends_on_dataset(dataset: str, method: str, *, shot: int) -> bool:
    """Return whether a method has other settings for a dataset than for miniImageNet."""
    settings = _SETTINGS[method]
    return settings(dataset, shot) != settings("miniimagenet", shot)


def meta_dataset_rfs() -> dict[str, Any]:
    """Return the experiment of RFS with distillation on Meta-Dataset, trained on ILSVRC-2012."""
    sizes = {"size": META_DATASET_SIZE, "stored_size": META_DATASET_SIZE}
    content = {
        "preset": "default",
        "tasks": {"name": "meta-dataset", "dataset": "md-ilsvrc", **sizes},
        "model": {"name": "resnet18"},
        "inner": {"batch_norm": "inductive"},
        "outer": {"num_iterations": 1, "num_tasks": 1, "num_val_tasks": 60},
        "test": {"num_tasks": 600, "ensemble": 1},
    }
    return METHODS["rfs-distill"].apply(content)


def _matching(dataset: str, shot: int) -> _Sections:
    return {"outer": {"num_iterations": 75_000}}


def _meta_lstm(dataset: str, shot: int) -> _Sections:
    # The steps of the published code; the paper states five.
    num_steps, num_iterations = (12, 75_000) if shot == 1 else (8, 50_000)
    return {"inner": {"num_steps": num_steps}, "outer": {"num_iterations": num_iterations}}


def _protonet(dataset: str, shot: int) -> _Sections:
    return {
        "tasks": {"train_way": 30 if shot == 1 else 20},
        "outer": {"num_iterations": 20_000},
    }


def _relation(dataset: str, shot: int) -> _Sections:
    sections: _Sections = {"outer": {"num_iterations": 500_000}}
    if shot > 1:
        sections["tasks"] = {"train_num_query": 10}
    return sections


def _tpn(dataset: str, shot: int) -> _Sections:
    # The paper's figures are those with more images in training ("higher shot").
    every = 25_000 if dataset == "tieredimagenet" else 10_000
    return {
        "tasks": {"train_shot": 5 if shot == 1 else 10},
        "schedule": {"every": every},
        "outer": {"num_iterations": 210_000},
    }


def _snail(dataset: str, shot: int) -> _Sections:
    return {}


def _tadam(dataset: str, shot: int) -> _Sections:
    # 12 or 32 queries in a task of five classes, rounded to whole images of every class
    num_tasks, num_query = (5, 2) if shot == 1 else (2, 6)
    return {
        "tasks": {"train_num_query": num_query},
        "outer": {"num_iterations": 30_000, "num_tasks": num_tasks},
        "schedule": {
            "name": "piecewise",
            "milestones": [15_000, 17_500, 20_000],
            "factors": [0.1, 0.01, 0.001],
        },
    }


def _act2param(dataset: str, shot: int) -> _Sections:
    # 50 epochs of 250 iterations
    return {"outer": {"num_iterations": 12_500}}


def _leo(dataset: str, shot: int) -> _Sections:
    sections: _Sections = {"outer": {"num_iterations": 100_000, "num_tasks": 12}}
    if shot == 1:
        sections["optimizer"] = {"learning_rate": 2.7e-4}
        sections["objective"] = {"divergence": 0.76, "orthogonality": 0.19}
    return sections


# Support images per class in training.
_METAOPTNET_SHOTS = {"miniimagenet": 15, "tieredimagenet": 10, "fc100": 15, "cifar-fs": 5}


def _metaoptnet(dataset: str, shot: int) -> _Sections:
    is_small = classification(dataset, "metaoptnet", shot=shot)["tasks"]["size"] < 84
    return {
        "tasks": {
            "train_shot": _METAOPTNET_SHOTS[dataset],
            "train_num_query": 6,
            "augment": True,
        },
        # Squares of DropBlock that fit the last feature maps
        "model": {"block_size": 2} if is_small else {},
        "objective": {"label_smoothing": 0.1 if dataset == "miniimagenet" else 0.0},
        # 60 epochs of 1,000 iterations
        "outer": {"num_iterations": 60_000, "num_tasks": 8, "validate_every": 1_000},
        "schedule": {
            "name": "piecewise",
            "milestones": [20_000, 40_000, 50_000],
            "factors": [0.06, 0.012, 0.0024],
        },
    }


_SETTINGS: Mapping[str, Callable[[str, int], _Sections]] = {
    "matching-fce": _matching,
    "meta-lstm": _meta_lstm,
    "protonet": _protonet,
    "relation": _relation,
    "tpn": _tpn,
    "snail": _snail,
    "tadam": _tadam,
    "act2param": _act2param,
    "leo": _leo,
    "metaoptnet": _metaoptnet,
}
