"""The experiments behind the paper's figures, as plain values (supplement, section E)."""

from collections.abc import Callable, Mapping
from typing import Any

from alfa.data import SOURCES
from alfa.methods import METHODS, merge

# Meta-Dataset's images, except drawings, are stored larger than models need, and resized later.
META_DATASET_SIZE = 126
# The image size of each prepared dataset.
SIZES: Mapping[str, int] = {
    name: META_DATASET_SIZE
    if name.startswith("md-") and name != "md-quickdraw"
    else SOURCES.get(name).size
    for name in SOURCES
}


# Published 1-shot runs have 4 tasks per iteration, except these, by method and backbone.
_NUM_ONE_SHOT_TASKS = {("maml+l2f", "resnet12"): 2, ("alfa+maml+l2f", "resnet12"): 2}


def classification(
    dataset: str,
    method: str,
    *,
    shot: int,
    way: int = 5,
    model: Mapping[str, Any] | None = None,
    num_steps: int | None = None,
    rule: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a few-shot classification experiment of 100 epochs of 500 iterations.

    `method` is a key of `alfa.methods.METHODS`. `rule` replaces its `[rule]` section, `num_steps`
    its number of inner steps, and `model` 4-CONV.
    """
    model = {"name": "conv4"} if model is None else model
    tasks = {"name": "images", "dataset": dataset, "size": SIZES[dataset]}
    tasks |= {"way": way, "shot": shot, "num_query": 15}
    num_val_classes, _ = SOURCES.get(dataset).published["val"]
    if way > num_val_classes:
        # miniImageNet has 16 validation classes, too few for 20-way tasks.
        tasks["val_way"] = num_val_classes
    num_tasks = 2 if shot > 1 else _NUM_ONE_SHOT_TASKS.get((method, model["name"]), 4)
    content = METHODS[method].apply(
        {
            "preset": "default",
            "tasks": tasks,
            "model": model,
            "inner": {"num_steps": 5},
            "outer": {"num_iterations": 50_000, "num_tasks": num_tasks},
        }
    )
    if rule is not None:
        content["rule"] = rule
    return content if num_steps is None else merge(content, {"inner": {"num_steps": num_steps}})


def regression(method: str, *, shot: int, hidden: list[int]) -> dict[str, Any]:
    """Return an experiment for regression on sine curves with an MLP."""
    recipe = METHODS[method]
    # A task on which adaptation diverges would corrupt Adam's averages, or stop the run.
    robust = {"max_gradient_norm": 100.0, "max_skipped": 10}
    # The paper does not state the numbers of tasks and iterations.
    return {
        "tasks": {"name": "sinusoid", "num_support": shot, "num_query": 100},
        "model": {"name": "mlp", "hidden": hidden},
        "init": recipe.init,
        "rule": recipe.rule,
        "outer": {"num_iterations": 30_000, "num_tasks": 4, "num_val_tasks": 200, **robust},
        "test": {"ensemble": 1},
    }


# The settings of both methods by Meta-Dataset (Triantafillou et al., 2020), which the paper uses:
# the inner learning rate, and sections of the experiment.
_BY_META_DATASET: Mapping[str, tuple[float, Mapping[str, Any]]] = {
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


def _with_rule(prefix: str, rule: Callable[[float], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sections of both methods, under their names with a prefix, with a rule."""
    settings = _BY_META_DATASET.items()
    return {f"{prefix}{name}": {**own, "rule": rule(rate)} for name, (rate, own) in settings}


_META_DATASET: Mapping[str, Mapping[str, Any]] = {
    **_with_rule("", lambda rate: {"name": "sgd", "learning_rate": rate}),
    **_with_rule(
        "alfa+", lambda rate: {"name": "alfa", "alpha": {"source": "generated", "start": rate}}
    ),
}


def meta_dataset(method: str) -> dict[str, Any]:
    """Return an experiment for a first-order method on Meta-Dataset, trained on ILSVRC-2012.

    `method` is ``"fo-maml"`` or ``"fo-proto-maml"``, optionally with the prefix ``"alfa+"``.
    """
    sections = _META_DATASET[method]
    sizes = {"size": META_DATASET_SIZE, "stored_size": META_DATASET_SIZE}
    return {
        "preset": "default",
        "tasks": {"name": "meta-dataset", "dataset": "md-ilsvrc", **sizes},
        "model": {"name": "resnet18"},
        **sections,
        "inner": {**sections["inner"], "order": "first", "batch_norm": "inductive"},
        "outer": {"num_iterations": 75_000, "num_tasks": 1, "num_val_tasks": 60},
        "test": {"num_tasks": 600, "ensemble": 1},
    }
