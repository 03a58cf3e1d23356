"""The last layer of a classifier: the trained layer of the run, or a new one for each task."""

import glob
import inspect

from alfa.errors import ConfigError
from alfa.inits import INITS, Init, TaskHead
from alfa.learner import Learner
from alfa.models import Headed, check_inductive_head, last_layer
from alfa.runs import Run

_SUFFIX = "-head"


def heads() -> dict[str, str]:
    """Return the inits that create a linear layer for any number of classes, by a short name.

    They have no options and no parameters of their own, so they need no training;
    ``"prototype"``, for example, is the init ``"prototype-head"``.
    """
    return {
        name.removesuffix(_SUFFIX): name
        for name in INITS
        if name.endswith(_SUFFIX)
        and _creates_head(INITS.get(name))
        and INITS.options(name).keys() <= {"adapt", "head"}
    }


def _creates_head(kind: type[Init]) -> bool:
    """Return whether an init creates a linear layer without parameters of its own."""
    own = getattr(kind, "initial_head", None)
    if own is None or own is TaskHead.initial_head:
        return False
    # Another constructor adds parameters.
    return inspect.unwrap(kind.__init__) is inspect.unwrap(TaskHead.__init__)


def load_learners(
    run: Run, *, checkpoint: str, head: str, num_classes: int, device: str
) -> list[Learner]:
    """Load the learners of a checkpoint; raise if the run does not support the head."""
    learners = run.learners(checkpoint, device=device)
    check_inductive_head(learners[0].model)
    init, num_outputs = learners[0].init, run.signature.num_outputs
    obstacle = _obstacle(learners[0])
    option = "init.base.name" if isinstance(getattr(init, "init", None), Init) else "init.name"
    retrain = f"train a run with {option}=prototype-head"
    if learners[0].rule.has_fixed_layers:
        retrain += ", and a rule without values for each weight"
    if head != "trained":
        if obstacle:
            advice = "" if init.variable_way else f", or {retrain}"
            raise ConfigError(
                f"`head` must be 'trained', got {head!r}, because {obstacle}; omit `head`{advice}."
            )
        replacement = {"name": heads()[head], "adapt": [glob.escape(name) for name in init.layers]}
        if (layer := getattr(init, "head", None)) is not None:
            replacement["head"] = layer
        return run.learners(checkpoint, init=replacement, device=device)
    if num_classes > num_outputs and not init.variable_way:
        # On prototypes without training, ALFA's rates diverge, but constant rates learn more than
        # from zeros.
        advice = "use head='zero' (--head zero) for ALFA, or head='prototype' for constant rates"
        raise ConfigError(
            f"the last layer of {run.path} has {num_outputs} outputs, too few for {num_classes} "
            f"classes; {retrain if obstacle else advice}."
        )
    return learners


def usable_heads(run: Run, *, checkpoint: str, num_classes: int, device: str) -> list[str]:
    """Return the heads that a run supports for a number of classes, its own first."""
    learner = run.learners(checkpoint, device=device)[0]
    is_large = num_classes <= run.signature.num_outputs or learner.init.variable_way
    own = ["trained"] if is_large else []
    if _obstacle(learner):
        return own or ["trained"]
    # A head that the run already has would be compared with itself.
    others = (
        name for name, kind in heads().items() if not isinstance(learner.init, INITS.get(kind))
    )
    return [*own, *others]


def _obstacle(learner: Learner) -> str:
    """Return the reason why another init cannot replace the learner's, or an empty string."""
    init = learner.init
    if isinstance(learner.model, Headed):
        return f"the run's last layer, {type(learner.model.head).__name__}, is not linear"
    own = {id(p) for p in init.parameters()} - {id(p) for p in learner.model.parameters()}
    if own or not any(True for _ in init.meta_parameters()):
        return (
            f"the run's init, {type(init).__name__}, trains more or less than the model's weights"
        )
    head = getattr(init, "head", None) or last_layer(learner.model)
    own_layer = learner.model.get_submodule(head).named_parameters(prefix=head)
    if missing := [name for name, _ in own_layer if name not in init.layers]:
        return f"the run's tasks do not adapt {missing[0]}"
    if learner.rule.has_fixed_layers:
        return (
            f"the run's rule, {type(learner.rule).__name__}, trained values for each weight of the "
            "last layer"
        )
    return ""
