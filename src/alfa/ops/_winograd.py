"""Convolutions of 3 x 3 with fewer multiplications, after Winograd.

A block of 4 x 4 places of z = x * W depends on the window d of 6 x 6 places of x around it:

    A' [sum over the channels of (G W G') (B' d B), place by place] A,

with small constant matrices A, B, and G: 36 multiplications instead of 144 (A. Lavin and S. Gray,
"Fast algorithms for convolutional neural networks", CVPR 2016, F(4 x 4, 3 x 3)). For all blocks of
all images at once, each of the 36 places makes a product of two matrices:

    X = B' d B,  U = G W G',   Z = X U',   z = A' Z A.

The maps are linear, so sums can be taken of Z, and the gradients go through the transposed maps,
with the same number of products:

    dZ = A dz A',   dx = B (dZ U) B',  summed where windows overlap,   dW = G' (dZ' X) G.

X and Z are tiles, ``[36, task, tile, channel]``, and U is ``[36, task, out, in]``.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from alfa.ops import _compiled as compiled

# With fewer channels, torch's kernels are faster.
_MIN_CHANNELS = 48

# With fewer tiles per task, the maps between W and U take longer than the products save.
_MIN_TILES = 25

# Minimum fraction of the places in blocks that lie inside the image; all places are computed.
_MIN_INSIDE = 0.6

# Number of tile values at once, which stay in the cache and need little memory.
_MAX_VALUES = 600_000


def is_faster(x: Tensor, shape: Sequence[int], stride: int) -> bool:
    """Return whether these kernels support images x and weights of a shape, and are faster."""
    _, num_out, num_in, *side = shape
    num_examples, height, width, _ = x.shape
    num_tiles = _num_tiles(x)
    return (
        stride == 1
        and side == [3, 3]
        and min(num_out, num_in) >= _MIN_CHANNELS
        and num_tiles >= _MIN_TILES
        and num_examples * height * width >= _MIN_INSIDE * 16 * num_tiles
        and compiled.use_kernels(x)
        and compiled.winograd_available(x.dtype)
    )


def transform(weight: Tensor) -> Tensor:
    """Return U."""
    return (_both_sides_of_g(weight) @ weight.reshape(-1, 9).T).view(36, *weight.shape[:3])


def conv(*terms: tuple[Tensor, Tensor]) -> Tensor:
    """Return z, the sum of the convolutions of pairs (x, U)."""
    (first, first_u), *_ = terms
    _, num_tasks, num_out, num_in = first_u.shape
    z = first.new_empty(*first.shape[:3], num_tasks * num_out)
    kernels = compiled.winograd_kernels(z.dtype)
    for examples in _parts(z, num_tasks, max(num_in, num_out)):
        tiles: Tensor | None = None
        for x, u in terms:
            x_tiles = _tiles(kernels.input_to_tiles, x[examples], num_tasks)
            tiles = _add_product(tiles, x_tiles, u.mT)
        _write_images(kernels.tiles_to_output, tiles, z[examples], num_tasks)
    return z


def conv_backward(
    *terms: tuple[Tensor, Tensor | None, Tensor | None], shape: Sequence[int]
) -> tuple[Tensor | None, Tensor | None]:
    """Sum dx and dW of terms (dz, x, U), without dx if U is None, and without dW if x is None."""
    num_tasks, num_out, num_in = shape[:3]
    first = terms[0][0]
    dx: Tensor | None = None
    if any(u is not None for _, _, u in terms):
        dx = first.new_empty(*first.shape[:3], num_tasks * num_in)
    kernels = compiled.winograd_kernels(first.dtype)
    du: Tensor | None = None
    for examples in _parts(first, num_tasks, max(num_in, num_out)):
        tiles: Tensor | None = None
        for dz, x, u in terms:
            dtiles = _tiles(kernels.output_grad_to_tiles, dz[examples], num_tasks)
            if x is not None:
                x_tiles = _tiles(kernels.input_to_tiles, x[examples], num_tasks)
                du = _add_product(du, dtiles.mT, x_tiles)
            if u is not None:
                tiles = _add_product(tiles, dtiles, u)
        if dx is not None:
            _write_images(kernels.tiles_to_input_grad, tiles, dx[examples], num_tasks)
    if du is None:
        return dx, None
    dw = (_both_sides_of_g(du).T @ du.view(36, -1)).view(3, 3, *shape[:3])
    return dx, dw.permute(2, 3, 4, 0, 1)


def _both_sides_of_g(like: Tensor) -> Tensor:
    """Return the matrix that multiplies a matrix, written as a vector, by G on both sides."""
    return torch.from_numpy(compiled.winograd_kernels(like.dtype).g)


def _add_product(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    """Add the products of all places and tasks to the total in place."""
    left, right = left.flatten(0, 1), right.flatten(0, 1)
    return torch.bmm(left, right) if total is None else total.baddbmm_(left, right)


def _num_tiles(images: Tensor) -> int:
    """Return the number of tiles of one task."""
    num_examples, height, width, _ = images.shape
    return num_examples * ((height + 3) // 4) * ((width + 3) // 4)


def _parts(images: Tensor, num_tasks: int, num_channels: int) -> Iterator[slice]:
    """Split the examples into equal parts with at most `_MAX_VALUES` tile values each."""
    values = 36 * num_tasks * _num_tiles(images) * num_channels
    num_parts = max(1, min(len(images), -(-values // _MAX_VALUES)))
    for part in range(num_parts):
        yield slice(len(images) * part // num_parts, len(images) * (part + 1) // num_parts)


def _tiles(map_: Any, images: Tensor, num_tasks: int) -> Tensor:
    num_channels = images.shape[3] // num_tasks
    tiles = images.new_empty(36, num_tasks, _num_tiles(images), num_channels)
    map_(compiled.array(images.flatten(2)), tiles.numpy())
    return tiles


def _write_images(map_: Any, products: Tensor | None, images: Tensor, num_tasks: int) -> None:
    assert products is not None
    map_(images.flatten(2).numpy(), products.unflatten(0, (36, num_tasks)).numpy())
