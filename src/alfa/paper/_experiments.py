"""The experiments behind the paper's figures, as plain values (supplement, section E)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from alfa.data import SOURCES
from alfa.methods import METHODS

# Meta-Dataset's photographs are stored larger than a model needs, and resized when they are drawn.
_META_DATASET_SIZE = 126
_META_DATASET_PHOTOS = (
    *("md-ilsvrc", "md-omniglot", "md-aircraft", "md-birds", "md-textures"),
    *("md-fungi", "md-flower", "md-traffic-sign", "md-mscoco"),
)
# The size of the images that each dataset is prepared with.
SIZES: Mapping[str, int] = {
    **{name: SOURCES.get(name).size for name in SOURCES},
    **dict.fromkeys(_META_DATASET_PHOTOS, _META_DATASET_SIZE),
}
# Published runs with 2 tasks per iteration for 1-shot, too; all others have 4.
_TWO_TASKS = {("maml+l2f", "resnet12"), ("alfa+maml+l2f", "resnet12")}


def setting(dataset: str, *, shot: int, way: int = 5) -> str:
    """The name of few-shot tasks in cell ids."""
    return f"{dataset}-{way}w{shot}s"


def classification(
    dataset: str,
    method: str,
    *,
    shot: int,
    way: int = 5,
    backbone: str = "conv4",
    num_steps: int = 5,
    rule: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Few-shot classification: 100 epochs of 500 iterations.

    Args:
        dataset: the training dataset.
        method: the name of a method in `alfa.methods.METHODS`.
        shot: support images per class.
        way: classes per task.
        backbone: the name of the model.
        num_steps: inner steps.
        rule: the `[rule]` section, if it is not the method's.
    """
    recipe = METHODS[method]
    tasks = {
        "name": "images",
        "dataset": dataset,
        "size": SIZES[dataset],
        "way": way,
        "shot": shot,
        "num_query": 15,
    }
    num_val_classes, _ = SOURCES.get(dataset).published["val"]
    if way > num_val_classes:
        # 20-way tasks need more than the 16 validation classes of miniImageNet.
        tasks["val_way"] = num_val_classes
    num_tasks = 2 if shot > 1 or (method, backbone) in _TWO_TASKS else 4
    return {
        "preset": "default",
        "tasks": tasks,
        "model": {"name": backbone},
        "init": recipe.init,
        "rule": recipe.rule if rule is None else rule,
        "inner": {"num_steps": num_steps},
        "outer": {"num_iterations": 50_000, "num_tasks": num_tasks},
    }


def regression(method: str, *, shot: int, hidden: Sequence[int]) -> dict[str, Any]:
    """Regression on sine curves with a perceptron."""
    recipe = METHODS[method]
    return {
        "tasks": {"name": "sinusoid", "num_support": shot, "num_query": 100},
        "model": {"name": "mlp", "hidden": list(hidden)},
        "init": recipe.init,
        "rule": recipe.rule,
        # The paper states neither the number of tasks nor of iterations. A task whose adaptation
        # explodes would spoil Adam's averages, or stop the run.
        "outer": {
            "num_iterations": 30_000,
            "num_tasks": 4,
            "max_gradient_norm": 100.0,
            "max_skipped": 10,
            "num_val_tasks": 200,
        },
        "test": {"ensemble": 1},
    }


# Meta-Dataset's own settings of the two methods (Triantafillou et al., 2020); the paper says that
# it uses them. The inner learning rate, and the sections that differ.
_META_DATASET: Mapping[str, tuple[float, Mapping[str, Any]]] = {
    "fo-maml": (
        0.099,
        {
            "init": {"name": "zero-head"},
            "inner": {"num_steps": 10, "num_test_steps": 15},
            "optimizer": {"name": "adam", "learning_rate": 3.60e-4, "weight_decay": 3.06e-4},
            "schedule": {"name": "step", "gamma": 0.835, "every": 10_000},
        },
    ),
    "fo-proto-maml": (
        0.0054,
        {
            "init": {"name": "prototype-head"},
            "inner": {"num_steps": 6},
            "optimizer": {"name": "adam", "learning_rate": 3.63e-4, "weight_decay": 1.37e-5},
            "schedule": {"name": "step", "gamma": 0.648, "every": 2_500},
        },
    ),
}


def meta_dataset(method: str) -> dict[str, Any]:
    """A first-order method on Meta-Dataset, trained on ILSVRC-2012.

    Args:
        method: ``"fo-maml"`` or ``"fo-proto-maml"``, or one of them after ``"alfa+"``.
    """
    base = method.removeprefix("alfa+")
    rate, sections = _META_DATASET[base]
    rule: Mapping[str, Any] = {"name": "sgd", "learning_rate": rate}
    if method != base:
        rule = {"name": "alfa", "alpha": {"source": "generated", "start": rate}}
    sizes = {"size": _META_DATASET_SIZE, "stored_size": _META_DATASET_SIZE}
    return {
        "preset": "default",
        "tasks": {"name": "meta-dataset", "dataset": "md-ilsvrc", **sizes},
        "model": {"name": "resnet18"},
        **sections,
        "rule": rule,
        "inner": {**sections["inner"], "order": "first", "batch_norm": "inductive"},
        "outer": {"num_iterations": 75_000, "num_tasks": 1, "num_val_tasks": 60},
        "test": {"num_tasks": 600, "ensemble": 1},
    }
