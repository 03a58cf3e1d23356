"""Max pooling in windows without overlap, on images ``[example, height, width, channel]``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from alfa.errors import ConfigError
from alfa.ops import _compiled as compiled


def check_windows(height: int, width: int, size: int) -> None:
    if height < size or width < size:
        raise ConfigError(
            f"images of {height} x {width} are too small for another {size} x {size} "
            "pooling; use larger images or fewer blocks."
        )


def rows(*tensors: Tensor | None) -> list[Any]:
    """Arrays ``[row, channel]``, to read from or to write to."""
    return [
        None if tensor is None else compiled.array(tensor).reshape(-1, tensor.shape[-1])
        for tensor in tensors
    ]


def max_pool(image: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The largest value of every window, and its place."""
    check_windows(image.shape[1], image.shape[2], size)
    if not compiled.use_kernels(image):
        return torch_max_pool(image, size)
    selected, places = empty_pooled(image, size)
    kernels, ones = compiled.norm_kernels(), image.new_ones(image.shape[-1]).numpy()
    sums = np.empty((kernels.PARTS, 2, len(ones)))
    kernels.select(compiled.array(image), size, 0, ones, ones, sums, *rows(selected, places))
    return selected, places


def empty_pooled(image: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Empty tensors for the selected values and their places; without pooling all are selected."""
    if size == 1:
        return image, image.new_empty(0, image.shape[-1], dtype=torch.uint8)
    num_examples, height, width, num_channels = image.shape
    shape = (num_examples, height // size, width // size, num_channels)
    return image.new_empty(shape), image.new_empty(shape, dtype=torch.uint8)


def torch_max_pool(image: Tensor, size: int, sign: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The largest sign * value of every window and its place, by torch."""
    if size == 1:
        return empty_pooled(image, size)
    windows = _windows(image, size)
    places = (windows if sign is None else windows * sign[:, None]).argmax(-1).byte()
    return select(image, places, size), places


def _windows(image: Tensor, size: int) -> Tensor:
    """``[example, height // size, width // size, channel, size * size]``, a copy."""
    num_examples, height, width, num_channels = image.shape
    whole = image[:, : height // size * size, : width // size * size]
    split = whole.reshape(num_examples, height // size, size, width // size, size, num_channels)
    return split.permute(0, 1, 3, 5, 2, 4).flatten(4)


def select(image: Tensor, places: Tensor, size: int) -> Tensor:
    """P: the values at the selected places."""
    if size == 1:
        return image
    return _windows(image, size).gather(-1, places.long().unsqueeze(-1)).squeeze(-1)


def unpool(values: Tensor, places: Tensor, shape: torch.Size, size: int) -> Tensor:
    """P': an image of zeros with the values at the selected places."""
    if size == 1:
        return values.clone()
    num_examples, height, width, num_channels = shape
    put = values.new_zeros(*values.shape, size * size)
    put.scatter_(-1, places.long().unsqueeze(-1), values.unsqueeze(-1))
    windows = put.unflatten(-1, (size, size)).permute(0, 1, 4, 2, 5, 3)
    image = values.new_zeros(shape)
    whole = (num_examples, height // size * size, width // size * size, num_channels)
    image[:, : whole[1], : whole[2]] = windows.reshape(whole)
    return image
