"""SNAIL: a sequence model as the learning rule."""

from alfa.methods._base import Method, register_method

_SNAIL = "Mishra, Rohaninejad, Chen, and Abbeel. A Simple Neural Attentive Meta-Learner. ICLR 2018."

register_method(
    Method(
        "snail",
        "SNAIL",
        _SNAIL,
        {"name": "task-head", "adapt": ["head.support"]},
        settings={"inner": {"num_steps": 0}},
        head={"name": "snail"},
    )
)
