"""The last layer of an estimator: the run's own, or one that is made for each task."""

from __future__ import annotations

import glob

from alfa.errors import ConfigError
from alfa.inits import Init
from alfa.learner import Learner
from alfa.runs import Run

HEADS = {"prototype": "prototype-head", "zero": "zero-head"}
"""The inits that make a head for any number of classes, by the name of the head."""


def load_learners(
    run: Run, *, checkpoint: str, head: str, num_classes: int, device: str
) -> list[Learner]:
    """Load the learners of a checkpoint with a trained head, or with one of `HEADS`.

    Raises:
        ConfigError: the run cannot have this head, or its head has too few outputs.
    """
    learners = run.learners(checkpoint, device=device)
    init, num_outputs = learners[0].init, run.signature.num_outputs
    fixed = _why_head_is_fixed(learners[0])
    option = "init.base.name" if isinstance(getattr(init, "init", None), Init) else "init.name"
    retrain = f"train a run with {option}=prototype-head"
    if head != "trained":
        if fixed:
            advice = "" if init.variable_way else f", or {retrain}"
            raise ConfigError(f"`head` is {head!r}, but {fixed}; leave `head` out{advice}.")
        replacement = {"name": HEADS[head], "adapt": [glob.escape(name) for name in init.layers]}
        if (layer := getattr(init, "head", None)) is not None:
            replacement["head"] = layer
        return run.learners(checkpoint, init=replacement, device=device)
    if num_classes > num_outputs and not init.variable_way:
        # ALFA's rates grow without limit on prototypes that it was not trained with, and constant
        # rates learn more from prototypes than from zeros.
        advice = "use head='zero' (--head zero) for ALFA, or head='prototype' for constant rates"
        raise ConfigError(
            f"there are {num_classes} classes, but the last layer of {run.path} was trained for "
            f"{num_outputs}; {retrain if fixed else advice}."
        )
    return learners


def _why_head_is_fixed(learner: Learner) -> str:
    """Why another init cannot replace the learner's; empty if one can."""
    init = learner.init
    own = {id(p) for p in init.parameters()} - {id(p) for p in learner.model.parameters()}
    if own or not any(True for _ in init.meta_parameters()):
        return f"the run's init, {type(init).__name__}, does not train the model's weights alone"
    if getattr(learner.rule, "per_parameter_decay", False):
        return (
            "the run has learned a decay for each weight of its last layer "
            "(rule.per_parameter_decay)"
        )
    return ""
