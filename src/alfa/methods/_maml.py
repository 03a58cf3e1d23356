"""MAML and ALFA, from a learned or a random init."""

from alfa.methods._base import Method, register_method

_MAML = (
    "Finn, Abbeel, and Levine. Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks. "
    "ICML 2017."
)
ALFA = "Baik, Choi, Choi, Kim, and Lee. Meta-Learning with Adaptive Hyperparameters. NeurIPS 2020."

_FIXED, _LEARNED = {"name": "fixed"}, {"name": "learned"}
# A random init is no prior, so the outer loop learns a decay of each weight (section 3.3).
_GENERATED_DECAYS = {"name": "alfa", "per_parameter_decay": True}

register_method(Method("random", "Random Init", ALFA, _FIXED))
register_method(Method("alfa+random", "ALFA + Random Init", ALFA, _FIXED, _GENERATED_DECAYS))
register_method(Method("maml", "MAML", _MAML, _LEARNED))
register_method(Method("alfa+maml", "ALFA + MAML", ALFA, _LEARNED, {"name": "alfa"}))
