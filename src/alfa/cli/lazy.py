"""Packages that import torch, loaded on first use so that `alfa --help` stays fast."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alfa import _distributed as _distributed
    from alfa import _runtime as _runtime
    from alfa import bench as bench
    from alfa import build as build
    from alfa import config as config
    from alfa import data as data
    from alfa import estimator as estimator
    from alfa import evaluation as evaluation
    from alfa import export as export
    from alfa import learner as learner
    from alfa import paper as paper
    from alfa import runs as runs
    from alfa import serve as serve
    from alfa import training as training
    from alfa.data import photos as photos
else:

    def __getattr__(name: str) -> object:
        return import_module("alfa.data.photos" if name == "photos" else f"alfa.{name}")
