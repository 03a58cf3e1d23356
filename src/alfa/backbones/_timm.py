"""Backbones of timm, the library of PyTorch image models."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any, get_args

import torch

from alfa.backbones._base import Backbone, Preprocessing, Resample, register_family
from alfa.backbones._module import make_backbone
from alfa.errors import ConfigError, did_you_mean


@register_family("timm")
def open_timm(name: str, *, pretrained: bool = True) -> Backbone:
    """Open a model of timm by its name; timm downloads the weights at the first use.

    Args:
        name: the name in timm, such as ``"resnet50"`` or ``"resnet50.a1_in1k"``.
        pretrained: load the pretrained weights; otherwise, they are random.

    Raises:
        ConfigError: timm is not installed, has no such model, or cannot download the weights.
    """
    timm = _timm(name)
    if not timm.is_model(name):
        hint = did_you_mean(name, timm.list_models())
        raise ConfigError(f"timm has no model {name!r}.{hint}")
    try:
        # timm draws initial weights from torch's global generator.
        with torch.random.fork_rng(devices=[]):
            module = timm.create_model(name, pretrained=pretrained, num_classes=0)
    # Errors of the connection, the hub, and the file system have no common type.
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"timm cannot load the weights of {name!r} ({reason}); check the connection to the "
            "internet, or choose a model that `timm.list_pretrained()` lists."
        ) from error
    config = timm.data.resolve_model_data_config(module)
    return make_backbone(f"timm:{name}", module, _preprocessing(name, config))


def _timm(name: str) -> Any:
    try:
        return importlib.import_module("timm")
    # timm needs torchvision, which raises a RuntimeError if it does not fit torch.
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"the backbone 'timm:{name}' needs timm, which cannot be imported ({error}); run "
            "`pip install 'alfa[timm]'`."
        ) from error


def _preprocessing(name: str, config: Mapping[str, Any]) -> Preprocessing:
    channels, height, width = config["input_size"]
    if channels != 3 or height != width:
        raise ConfigError(
            f"timm's model {name!r} takes inputs of {channels} x {height} x {width}, but alfa "
            "supports only square color images."
        )
    resample = config["interpolation"]
    if resample not in get_args(Resample):
        raise ConfigError(
            f"timm's model {name!r} needs images that are resized by the filter {resample!r}, but "
            f"alfa has only {' and '.join(get_args(Resample))}."
        )
    resize = math.floor(height / config["crop_pct"])
    return Preprocessing(height, resize, resample, tuple(config["mean"]), tuple(config["std"]))
