"""Backbones from the user's own modules."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from alfa.backbones._base import Backbone, Preprocessing, register_backbone
from alfa.backbones._weights import load_weights
from alfa.errors import ConfigError


def register_module(
    name: str,
    module: nn.Module,
    *,
    preprocessing: Preprocessing | None = None,
    weights: Path | str | None = None,
) -> Backbone:
    """Register a module as a pretrained backbone, and return it.

    The backbone takes over the module: it converts the module to float32, switches it to evaluation
    mode, and freezes its parameters.

    Args:
        name: the name that experiments use.
        module: maps normalized images ``[image, 3, size, size]`` to features ``[image, feature]``,
            or to maps ``[image, feature, height, width]``, which are averaged.
        preprocessing: how photos become inputs; None for 224 pixels, and the mean and standard
            deviation of ImageNet.
        weights: a ``.safetensors`` file, or a state dict that `torch.save` wrote, which cannot
            execute code; None if the module has its weights.

    Raises:
        ConfigError: the name is taken, or the module does not map images to features.
        CheckpointError: the file cannot be read, or does not fit the module.

    Examples:
        >>> from torch import nn
        >>> from alfa.backbones import Preprocessing, open_backbone, register_module
        >>> small = Preprocessing(size=32, resize=36)
        >>> backbone = register_module("one-layer", nn.Conv2d(3, 4, 3), preprocessing=small)
        >>> backbone.num_features, open_backbone("one-layer") is backbone
        (4, True)
    """
    module.to("cpu", torch.float32)
    if weights is not None:
        load_weights(module, Path(weights))
    backbone = make_backbone(name, module, preprocessing or Preprocessing())

    @register_backbone(name)
    def open_module() -> Backbone:
        return backbone

    return backbone


def make_backbone(name: str, module: nn.Module, preprocessing: Preprocessing) -> Backbone:
    """Create a backbone from a module, and determine the number of features by one image."""
    module.eval()
    side = preprocessing.size
    image = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    try:
        with torch.no_grad():
            output = module(image)
    # A module may raise errors of any type.
    except Exception as error:
        raise ConfigError(
            f"the module of the backbone {name!r} fails for images [1, 3, {side}, {side}]: {error}"
        ) from error
    if not isinstance(output, Tensor) or output.ndim not in (2, 4) or len(output) != 1:
        found = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ConfigError(
            f"the module of the backbone {name!r} must return features [image, feature] or maps "
            f"[image, feature, height, width], got {found} for one image."
        )
    network = module
    if output.ndim == 4:
        network = nn.Sequential(module, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Backbone(name, network, output.shape[1], preprocessing)
