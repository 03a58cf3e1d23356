"""Prototypes, ridge regression, and logistic regression on features, without and with inner steps.

They are the closed-form heads of other methods with settings for the features of a pretrained
backbone, whose learned map is meta-trained; docs/features.md compares them. `protonet` and `r2d2`
keep the published settings for networks that are trained from scratch.
"""

from collections.abc import Mapping
from typing import Any

from alfa.methods._base import Method, register_method
from alfa.methods._maml import ALFA
from alfa.methods._protonet import PROTONET
from alfa.methods._r2d2 import R2D2
from alfa.methods._rfs import RFS

_ADAPT = ["head"]
_STEPS = 3


def _register(name: str, title: str, reference: str, **parts: Mapping[str, Any]) -> None:
    register_method(Method(name, title, reference, settings={"inner": {"num_steps": 0}}, **parts))
    register_method(
        Method(
            f"alfa+{name}",
            f"ALFA + {title}",
            ALFA,
            rule={"name": "alfa"},
            settings={"inner": {"num_steps": _STEPS}},
            **parts,
        )
    )


_register(
    "prototype",
    "Prototypes",
    PROTONET,
    init={"name": "prototype-head", "adapt": _ADAPT},
    # Distances between features of norm 1 are too small for confident predictions.
    backbones={"features": {"scale": 3.0}},
)
_register(
    "ridge",
    "Ridge regression",
    R2D2,
    init={"name": "ridge-head", "adapt": _ADAPT, "regularization": 0.01},
)
_register(
    "logistic",
    "Logistic regression",
    RFS,
    init={"name": "task-head", "adapt": _ADAPT},
    head={"name": "logistic", "inverse_regularization": 10.0},
)
