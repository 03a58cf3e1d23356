"""Reptile: a step towards the adapted weights."""

from alfa.methods._base import Method, register_method

_REPTILE = "Nichol, Achiam, and Schulman. On First-Order Meta-Learning Algorithms. arXiv 2018."

register_method(
    Method(
        "reptile",
        "Reptile",
        _REPTILE,
        {"name": "learned", "adapt": ["*"]},
        {"name": "adam", "beta1": 0.0},
        settings={
            "inner": {"num_steps": 8, "num_test_steps": 50, "batch_size": 10, "order": "first"},
            "outer": {"num_tasks": 5},
        },
        objective={"name": "reptile"},
        parts={
            # epsilon, the size of the step towards the adapted weights
            "optimizer": {"name": "sgd", "learning_rate": 1.0},
            "schedule": {"name": "linear"},
        },
    )
)
