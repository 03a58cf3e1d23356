"""The default of the photo classifier: ridge regression on the features of a backbone."""

from alfa.methods._base import Method, register_method
from alfa.methods._r2d2 import R2D2

register_method(
    Method(
        "balanced-ridge",
        "Balanced ridge regression",
        R2D2,
        init={"name": "task-head", "adapt": ["head"]},
        head={"name": "ridge"},
        settings={"inner": {"num_steps": 0}},
        # Roots reduce the influence of a few large features.
        backbones={"features": {"power": 0.7, "learned_map": False}},
    )
)
