"""TADAM: task-conditioned prototypical networks."""

from alfa.methods._base import Method, register_method

_TADAM = (
    "Oreshkin, Rodriguez, and Lacoste. TADAM: Task Dependent Adaptive Metric for Improved Few-Shot "
    "Learning. NeurIPS 2018."
)

register_method(
    Method(
        "tadam",
        "TADAM",
        _TADAM,
        init={"name": "conditioned-prototypes"},
        settings={"inner": {"num_steps": 0}, "outer": {"num_tasks": 2}},
        objective={"name": "co-training"},
        parts={
            "optimizer": {
                "name": "sgd",
                "learning_rate": 0.1,
                "momentum": 0.9,
                "weight_decay": 5e-4,
            },
            # The paper divides the rate by 10 at 1/2, 7/12, and 2/3 of the training.
            "schedule": {"name": "cosine"},
        },
    )
)
