"""Few-shot learning: adapt any module to new tasks with any update rule.

The names below are the public interface. They are imported on first use, so that the command line
starts before torch is imported. Importing `alfa` does not change the process; `alfa.tune` does.
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
    from alfa.inits import TaskHead as TaskHead
    from alfa.inits import register_init as register_init
    from alfa.learner import Learner as Learner
    from alfa.learner import adapt as adapt
    from alfa.models import MLP as MLP
    from alfa.models import Conv4 as Conv4
    from alfa.models import ResNet12 as ResNet12
    from alfa.models import register_model as register_model
    from alfa.objectives import Objective as Objective
    from alfa.objectives import register_objective as register_objective
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

_PACKAGES = {
    "_runtime": ("tune",),
    "data": ("Sinusoids", "Tasks", "register_tasks"),
    "errors": ("AlfaError",),
    "estimator": ("FewShotClassifier", "FewShotRegressor"),
    "evaluation": ("evaluate",),
    "inits": (
        "Attenuated",
        "FixedInit",
        "Init",
        "LearnedInit",
        "PrototypeHead",
        "TaskHead",
        "register_init",
    ),
    "learner": ("Learner", "adapt"),
    "models": ("MLP", "Conv4", "ResNet12", "register_model"),
    "objectives": ("Objective", "register_objective"),
    "ops": ("cross_entropy", "mse"),
    "optim": ("register_optimizer", "register_schedule"),
    "rules": ("ALFA", "SGD", "Generated", "Learned", "LearnedRates", "Rule", "register_rule"),
    "runs": ("Run",),
    "training": ("Trainer",),
    "types": ("Episode", "Params", "Rates"),
}
_PACKAGE_OF = {name: package for package, names in _PACKAGES.items() for name in names}

__all__ = sorted(_PACKAGE_OF)


def __getattr__(name: str) -> Any:
    if name not in _PACKAGE_OF:
        raise AttributeError(f"module 'alfa' has no attribute {name!r}")
    return getattr(importlib.import_module(f"alfa.{_PACKAGE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
