"""BOIL: MAML with an inner loop for the body only."""

from alfa.methods._base import Method, register_method

_BOIL = (
    "Oh, Yoo, Kim, and Yun. BOIL: Towards Representation Change for Few-shot Learning. ICLR 2021."
)

register_method(
    Method(
        "boil",
        "BOIL",
        _BOIL,
        {"name": "learned", "adapt": ["body"]},
        {"name": "sgd", "learning_rate": 0.5},
        settings={"inner": {"num_steps": 1}, "outer": {"num_tasks": 4}},
    )
)
