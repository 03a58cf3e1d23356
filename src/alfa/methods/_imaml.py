"""iMAML: implicit gradients of a proximal inner problem."""

from alfa.methods._base import Method, register_method

_IMAML = (
    "Rajeswaran, Finn, Kakade, and Levine. Meta-Learning with Implicit Gradients. NeurIPS 2019."
)

# lambda, the same in the inner and the outer problem
_STRENGTH = 2.0

register_method(
    Method(
        "imaml",
        "iMAML",
        _IMAML,
        {"name": "learned"},
        {"name": "proximal", "learning_rate": 0.1, "strength": _STRENGTH},
        settings={"inner": {"num_steps": 16, "order": "first"}},
        objective={"name": "implicit", "strength": _STRENGTH, "num_cg_steps": 5},
    )
)
