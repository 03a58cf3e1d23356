"""A check of the trained parameters that an objective without unrolled steps can train."""

from alfa.errors import ConfigError
from alfa.learner import Adapted, Learner


def check_reach(name: str, learner: Learner, start: Adapted, *, trains_shared: bool) -> None:
    """Raise ConfigError if the objective `name` would leave a trained parameter as it is.

    Args:
        name: the name of the objective.
        learner: the learner to train.
        start: the models before the first step.
        trains_shared: the objective trains parameters that the inner loop does not adapt.
    """
    if any(parameter.requires_grad for parameter in learner.rule.parameters()):
        raise ConfigError(
            f"the objective {name!r} does not differentiate the inner steps, so it cannot train "
            f"the parameters of the rule {type(learner.rule).__name__}; use a rule without trained "
            "parameters, such as 'sgd'."
        )
    shared = [key for key, p in start.shared.items() if p.requires_grad]
    if shared and not trains_shared:
        raise ConfigError(
            f"the objective {name!r} trains adapted parameters only, but the inner loop does not "
            f"adapt {', '.join(shared)}; set `adapt` of the init to '*', or freeze them."
        )
