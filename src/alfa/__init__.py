"""Few-shot learning by gradient: adapt any module to new tasks by any update rule.

The names below are the public interface. They are resolved on first use, so that the
command line answers before torch is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alfa.data import Sinusoids as Sinusoids
    from alfa.errors import AlfaError as AlfaError
    from alfa.estimator import FewShotClassifier as FewShotClassifier
    from alfa.estimator import FewShotRegressor as FewShotRegressor
    from alfa.inits import Attenuated as Attenuated
    from alfa.inits import FixedInit as FixedInit
    from alfa.inits import LearnedInit as LearnedInit
    from alfa.inits import PrototypeHead as PrototypeHead
    from alfa.inits import register_init as register_init
    from alfa.inner import Learner as Learner
    from alfa.inner import adapt as adapt
    from alfa.models import MLP as MLP
    from alfa.models import Conv4 as Conv4
    from alfa.models import ResNet12 as ResNet12
    from alfa.models import register_model as register_model
    from alfa.ops import cross_entropy as cross_entropy
    from alfa.ops import mse as mse
    from alfa.rules import ALFA as ALFA
    from alfa.rules import SGD as SGD
    from alfa.rules import Generated as Generated
    from alfa.rules import Learned as Learned
    from alfa.rules import LearnedRates as LearnedRates
    from alfa.rules import register_rule as register_rule
    from alfa.types import Episode as Episode
    from alfa.types import Params as Params

__version__ = "0.1.0"

_HOMES = {
    "ALFA": "rules",
    "AlfaError": "errors",
    "Attenuated": "inits",
    "Conv4": "models",
    "Episode": "types",
    "FewShotClassifier": "estimator",
    "FewShotRegressor": "estimator",
    "FixedInit": "inits",
    "Generated": "rules",
    "Learned": "rules",
    "LearnedInit": "inits",
    "LearnedRates": "rules",
    "Learner": "inner",
    "MLP": "models",
    "Params": "types",
    "PrototypeHead": "inits",
    "ResNet12": "models",
    "SGD": "rules",
    "Sinusoids": "data",
    "adapt": "inner",
    "cross_entropy": "ops",
    "mse": "ops",
    "register_init": "inits",
    "register_model": "models",
    "register_rule": "rules",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'alfa' has no attribute {name!r}")
    return getattr(importlib.import_module(f"alfa.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
