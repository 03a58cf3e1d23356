"""Convolutions of 3 x 3 with fewer multiplications, after Winograd.

A block of 2 x 2 places of z = x * W hangs on the window of 4 x 4 places of x around it. With d that
window, the block is

    A' [sum over the channels of (G W G') (B' d B), place by place] A,

where A, B and G hold next to nothing but 0 and 1: 16 multiplications instead of 36 (A. Lavin and
S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016, F(2 x 2, 3 x 3)). For all
blocks of all images at once, each of the 16 places makes a product of two matrices:

    X = B' d B,  U = G W G',   Z = X U',   z = A' Z A.

The maps are linear, so the gradients go through their transposes, with the same number of products:

    dZ = A dz A',   dx = B (dZ U) B',  summed where windows overlap,   dW = G' (dZ' X) G.

X and Z are tiles, ``[16, task, tile, channel]``, and U is ``[16, task, out, in]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from alfa.ops import _compiled as compiled

# With fewer, torch's kernels are the faster ones; for the gradient in W they are slow.
_FEWEST_CHANNELS = 128
_FEWEST_CHANNELS_DW = 48

# Of a task; with fewer, the maps between W and U take longer than the products save.
_FEWEST_TILES = 200

# So many values of tiles at once: they stay in the cache, and take little memory.
_MOST_VALUES = 1_500_000

# A and B are in the kernels. Of a matrix that is written as a vector: [16, 9].
_G = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], device="cpu")
_G_ON_BOTH_SIDES = {dtype: torch.kron(_G, _G).to(dtype) for dtype in compiled.DTYPES}


def fits(x: Tensor, shape: Sequence[int], stride: int, *, dw: bool = False) -> bool:
    """Whether this is possible, and the faster way.

    Args:
        x: the images.
        shape: of the weights.
        stride: of the convolution.
        dw: whether for dW, rather than for x * W and dx.
    """
    _, num_out, num_in, *side = shape
    return (
        stride == 1
        and side == [3, 3]
        and min(num_out, num_in) >= (_FEWEST_CHANNELS_DW if dw else _FEWEST_CHANNELS)
        and _num_tiles(x) >= _FEWEST_TILES
        and compiled.worth_it(x, work=0)
        and compiled.can_winograd(x.dtype)
    )


def laid(weight: Tensor) -> Tensor:
    """U"""
    return (_G_ON_BOTH_SIDES[weight.dtype] @ weight.reshape(-1, 9).T).view(16, *weight.shape[:3])


def conv(x: Tensor, u: Tensor) -> Tensor:
    """z"""
    _, num_tasks, num_out, num_in = u.shape
    z = x.new_empty(*x.shape[:3], num_tasks * num_out)
    maps = compiled.winograd_maps(x.dtype)
    for examples in _parts(x, num_tasks, max(num_in, num_out)):
        tiles = _product(_tiles(maps.take, x[examples], num_tasks), u.mT)
        _untiled(maps.give, tiles, z[examples])
    return z


def conv_dx(dz: Tensor, u: Tensor) -> Tensor:
    """dx"""
    _, num_tasks, num_out, num_in = u.shape
    dx = dz.new_empty(*dz.shape[:3], num_tasks * num_in)
    maps = compiled.winograd_maps(dz.dtype)
    for examples in _parts(dz, num_tasks, max(num_in, num_out)):
        tiles = _product(_tiles(maps.take_back, dz[examples], num_tasks), u)
        _untiled(maps.give_back, tiles, dx[examples])
    return dx


def conv_dw(dz: Tensor, x: Tensor, shape: Sequence[int]) -> Tensor:
    """dW, of a given shape."""
    num_tasks, num_out, num_in = shape[:3]
    maps = compiled.winograd_maps(x.dtype)
    du = x.new_zeros(16, num_tasks, num_out, num_in)
    for examples in _parts(x, num_tasks, max(num_in, num_out)):
        tiles = _tiles(maps.take, x[examples], num_tasks)
        dtiles = _tiles(maps.take_back, dz[examples], num_tasks)
        du.flatten(0, 1).baddbmm_(dtiles.flatten(0, 1).mT, tiles.flatten(0, 1))
    dw = (_G_ON_BOTH_SIDES[du.dtype].T @ du.view(16, -1)).view(3, 3, *shape[:3])
    return dw.permute(2, 3, 4, 0, 1)


def _num_tiles(images: Tensor) -> int:
    """Of one task."""
    num_examples, height, width, _ = images.shape
    return num_examples * ((height + 1) // 2) * ((width + 1) // 2)


def _parts(images: Tensor, num_tasks: int, num_channels: int) -> Iterator[slice]:
    """The examples, as many at once as fit."""
    values = 16 * num_tasks * _num_tiles(images[:1]) * num_channels
    at_once = max(1, _MOST_VALUES // values)
    for first in range(0, len(images), at_once):
        yield slice(first, first + at_once)


def _tiles(take: Any, images: Tensor, num_tasks: int) -> Tensor:
    apart = images.unflatten(3, (num_tasks, -1))
    tiles = images.new_empty(16, num_tasks, _num_tiles(images), apart.shape[-1])
    take(compiled.array(apart), tiles.numpy())
    return tiles


def _untiled(give: Any, tiles: Tensor, images: Tensor) -> None:
    give(images.unflatten(3, (tiles.shape[1], -1)).numpy(), tiles.numpy())


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Of every place and task."""
    joined = torch.bmm(left.flatten(0, 1), right.flatten(0, 1))
    return joined.view(*left.shape[:2], *joined.shape[1:])
