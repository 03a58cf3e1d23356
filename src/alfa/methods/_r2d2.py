"""R2D2: ridge regression as the last layer."""

from alfa.methods._base import Method, register_method

R2D2 = (
    "Bertinetto, Henriques, Torr, and Vedaldi. Meta-Learning with Differentiable Closed-Form "
    "Solvers. ICLR 2019."
)

register_method(
    Method(
        "r2d2",
        "R2D2",
        R2D2,
        {"name": "ridge-head", "adapt": ["head"]},
        settings={"inner": {"num_steps": 0}},
        parts={
            "optimizer": {"name": "adam", "learning_rate": 0.005},
            "schedule": {"name": "step", "gamma": 0.5, "every": 2_000},
        },
    )
)
