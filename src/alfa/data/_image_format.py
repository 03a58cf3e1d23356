"""The images that a model takes, and their conversion to its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from alfa.backbones import EmbeddingCache, open_backbone
from alfa.data._base import Signature
from alfa.data._decode import Crop, decode, decode_opened
from alfa.data._image_set import Shape, scale_and_shift
from alfa.errors import ConfigError


@dataclass(frozen=True)
class ImageFormat:
    """The images that a model takes, and their conversion to its inputs.

    Attributes:
        shape: channels, height, and width.
        crop: how images are cropped; None if their aspect ratio is not kept.
        signature: the signature of the model's tasks.
    """

    shape: Shape
    crop: Crop | None
    signature: Signature

    @classmethod
    def of(cls, signature: Signature) -> ImageFormat:
        """Return the format of the images of a model; raise ConfigError if it takes no images."""
        if signature.loss != "cross_entropy" or not (
            signature.backbone or len(signature.input_shape) == 3
        ):
            raise ConfigError("the model was not trained on image classification")
        if signature.backbone:
            prepared = open_backbone(signature.backbone).preprocessing
            crop = Crop(prepared.resize, prepared.resample)
            return cls((3, prepared.size, prepared.size), crop, signature)
        num_channels, height, width = signature.input_shape
        if num_channels not in (1, 3) or {len(signature.mean), len(signature.std)} != {
            num_channels
        }:
            raise ConfigError(
                "image files need 1 or 3 channels with a `mean` and a `std` for each, got "
                f"{num_channels} channel(s) with {list(signature.mean)} and {list(signature.std)}"
            )
        return cls((num_channels, height, width), None, signature)

    def decode(self, content: bytes | np.ndarray) -> tuple[np.ndarray, list[str]]:
        """Decode an image like `alfa.data.decode`, in the size of the model."""
        return decode(content, size=self.shape[1:], num_channels=self.shape[0], crop=self.crop)

    def decode_opened(self, image: Image.Image) -> tuple[np.ndarray, list[str]]:
        """Decode an open image like `alfa.data.decode_opened`, in the size of the model."""
        size, num_channels = self.shape[1:], self.shape[0]
        return decode_opened(image, size=size, num_channels=num_channels, crop=self.crop)

    def inputs(self, levels: np.ndarray, cache: EmbeddingCache | None = None) -> Tensor:
        """Convert levels from 0 to 255, ``[image, channel, height, width]``, to a model's inputs.

        These are normalized images, or the features of the backbone, which the `cache` keeps.
        """
        if self.signature.backbone:
            backbone = open_backbone(self.signature.backbone)
            found = backbone.features(levels) if cache is None else cache.features(backbone, levels)
            return torch.from_numpy(found)
        scale, shift = scale_and_shift(self.signature.mean, self.signature.std)
        # A copy, because the levels may be read-only.
        return torch.from_numpy(np.array(levels, np.float32)).mul_(scale).add_(shift)

    def input_module(self) -> nn.Module:
        """Return a module that computes `inputs` from levels as tensors, such as for an export."""
        if self.signature.backbone:
            backbone = open_backbone(self.signature.backbone)
            mean, std = backbone.preprocessing.mean, backbone.preprocessing.std
            return nn.Sequential(_ScaleAndShift(mean, std), backbone.network)
        return _ScaleAndShift(self.signature.mean, self.signature.std)


class _ScaleAndShift(nn.Module):
    """Normalizes levels from 0 to 255 by channel means and standard deviations."""

    scale: Tensor
    shift: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        scale, shift = scale_and_shift(mean, std)
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)

    def forward(self, levels: Tensor) -> Tensor:
        return levels * self.scale + self.shift
