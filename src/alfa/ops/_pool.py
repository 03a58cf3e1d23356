"""Max pooling in windows without overlap, on images ``[example, height, width, channel]``."""

import torch
from torch import Tensor

from alfa.errors import ConfigError
from alfa.ops import _compiled as compiled


def check_size(size: int) -> None:
    if size not in (1, 2):
        raise ConfigError(f"`size` must be 2, or 1 for no pooling, got {size}.")


def check_windows(height: int, width: int, size: int) -> None:
    if height < size or width < size:
        raise ConfigError(
            f"images of {height} x {width} are too small for another {size} x {size} "
            "pooling; use larger images or fewer blocks."
        )


def max_pool(image: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the largest value of every window, and its place."""
    check_windows(image.shape[1], image.shape[2], size)
    if size == 1 or not compiled.use_kernels(image):
        return torch_max_pool(image, size)
    selected, places = empty_pooled(image, size)
    compiled.norm_kernels().max_pool(*compiled.arrays(image, selected, places))
    return selected, places


def empty_pooled(image: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Allocate the selected values and their places; without pooling, all values are selected."""
    num_examples, height, width, num_channels = image.shape
    if size == 1:
        return image, image.new_empty(0, 1, 1, num_channels, dtype=torch.uint8)
    shape = (num_examples, height // size, width // size, num_channels)
    return image.new_empty(shape), image.new_empty(shape, dtype=torch.uint8)


def torch_max_pool(image: Tensor, size: int, sign: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the largest sign * value of every window and its place, computed by torch."""
    if size == 1:
        return empty_pooled(image, size)
    windows = _windows(image, size)
    places = (windows if sign is None else windows * sign[:, None]).argmax(-1).byte()
    return select(image, places, size), places


def _windows(image: Tensor, size: int) -> Tensor:
    """Copy to ``[example, height // size, width // size, channel, size * size]``."""
    num_examples, height, width, num_channels = image.shape
    whole = image[:, : height // size * size, : width // size * size]
    split = whole.reshape(num_examples, height // size, size, width // size, size, num_channels)
    return split.permute(0, 1, 3, 5, 2, 4).flatten(4)


def select(image: Tensor, places: Tensor, size: int) -> Tensor:
    """Apply P: return the values at the selected places."""
    if size == 1:
        return image
    return _windows(image, size).gather(-1, places.long().unsqueeze(-1)).squeeze(-1)


def unpool(values: Tensor, places: Tensor, shape: torch.Size, size: int) -> Tensor:
    """Apply P': return an image of zeros with the values at the selected places."""
    if size == 1:
        return values.clone()
    put = values.new_zeros(*values.shape, size * size)
    put.scatter_(-1, places.long().unsqueeze(-1), values.unsqueeze(-1))
    num_examples, rows, columns, num_channels = values.shape
    whole = put.unflatten(-1, (size, size)).permute(0, 1, 4, 2, 5, 3)
    image = values.new_zeros(shape)
    image[:, : rows * size, : columns * size] = whole.reshape(
        num_examples, rows * size, columns * size, num_channels
    )
    return image
