"""Models, and how any module runs on a stack of tasks."""

from alfa.models._base import MODELS, Model, OverTasks, register_model, run_stacked
from alfa.models._conv4 import Conv4
from alfa.models._mlp import MLP

__all__ = ["MLP", "Conv4", "MODELS", "Model", "OverTasks", "register_model", "run_stacked"]
