"""Few-shot learning: adapt any module to new tasks with any update rule.

The names below are the public interface. They are imported on first use, so that the command line
answers before torch is imported. Importing `alfa` does not change the process; `alfa.tune` does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alfa._runtime import tune as tune
    from alfa.data import Sinusoids as Sinusoids
    from alfa.data import Tasks as Tasks
    from alfa.data import register_tasks as register_tasks
    from alfa.errors import AlfaError as AlfaError
    from alfa.estimator import FewShotClassifier as FewShotClassifier
    from alfa.estimator import FewShotRegressor as FewShotRegressor
    from alfa.evaluation import evaluate as evaluate
    from alfa.inits import Attenuated as Attenuated
    from alfa.inits import FixedInit as FixedInit
    from alfa.inits import Init as Init
    from alfa.inits import LearnedInit as LearnedInit
    from alfa.inits import PrototypeHead as PrototypeHead
    from alfa.inits import register_init as register_init
    from alfa.learner import Learner as Learner
    from alfa.learner import adapt as adapt
    from alfa.models import MLP as MLP
    from alfa.models import Conv4 as Conv4
    from alfa.models import ResNet12 as ResNet12
    from alfa.models import register_model as register_model
    from alfa.ops import cross_entropy as cross_entropy
    from alfa.ops import mse as mse
    from alfa.optim import register_optimizer as register_optimizer
    from alfa.optim import register_schedule as register_schedule
    from alfa.rules import ALFA as ALFA
    from alfa.rules import SGD as SGD
    from alfa.rules import Generated as Generated
    from alfa.rules import Learned as Learned
    from alfa.rules import LearnedRates as LearnedRates
    from alfa.rules import Rule as Rule
    from alfa.rules import register_rule as register_rule
    from alfa.runs import Run as Run
    from alfa.training import Trainer as Trainer
    from alfa.types import Episode as Episode
    from alfa.types import Params as Params
    from alfa.types import Rates as Rates

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
    "Init": "inits",
    "Learned": "rules",
    "LearnedInit": "inits",
    "LearnedRates": "rules",
    "Learner": "learner",
    "MLP": "models",
    "Params": "types",
    "PrototypeHead": "inits",
    "Rates": "types",
    "ResNet12": "models",
    "Rule": "rules",
    "Run": "runs",
    "SGD": "rules",
    "Sinusoids": "data",
    "Tasks": "data",
    "Trainer": "training",
    "adapt": "learner",
    "cross_entropy": "ops",
    "evaluate": "evaluation",
    "mse": "ops",
    "register_init": "inits",
    "register_model": "models",
    "register_optimizer": "optim",
    "register_rule": "rules",
    "register_schedule": "optim",
    "register_tasks": "data",
    "tune": "_runtime",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'alfa' has no attribute {name!r}")
    return getattr(importlib.import_module(f"alfa.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
