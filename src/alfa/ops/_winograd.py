"""Convolutions of 3 x 3 with fewer multiplications, after Winograd.

A block of 4 x 4 places of z = x * W hangs on the window of 6 x 6 places of x around it. With d that
window, the block is

    A' [sum over the channels of (G W G') (B' d B), place by place] A,

where A, B and G are small constant matrices: 36 multiplications instead of 144 (A. Lavin and
S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016, F(4 x 4, 3 x 3)). For all
blocks of all images at once, each of the 36 places makes a product of two matrices:

    X = B' d B,  U = G W G',   Z = X U',   z = A' Z A.

The maps are linear, so sums can be taken of Z, and the gradients go through the transposed maps,
with the same number of products:

    dZ = A dz A',   dx = B (dZ U) B',  summed where windows overlap,   dW = G' (dZ' X) G.

X and Z are tiles, ``[36, task, tile, channel]``, and U is ``[36, task, out, in]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from alfa.ops import _compiled as compiled

# With fewer, torch's kernels are the faster ones.
_FEWEST_CHANNELS = 48

# Of a task; with fewer, the maps between W and U take longer than the products save.
_FEWEST_TILES = 25

# Of the places in blocks; those beyond the edge are computed, too.
_LEAST_INSIDE = 0.6

# So many values of tiles at once: they stay in the cache, and take little memory.
_MOST_VALUES = 600_000


def fits(x: Tensor, shape: Sequence[int], stride: int) -> bool:
    """Whether this is possible, and the faster way.

    Args:
        x: the images.
        shape: of the weights.
        stride: of the convolution.
    """
    _, num_out, num_in, *side = shape
    num_examples, height, width, _ = x.shape
    num_tiles = _num_tiles(x)
    return (
        stride == 1
        and side == [3, 3]
        and min(num_out, num_in) >= _FEWEST_CHANNELS
        and num_tiles >= _FEWEST_TILES
        and num_examples * height * width >= _LEAST_INSIDE * 16 * num_tiles
        and compiled.worth_it(x, work=0)
        and compiled.can_winograd(x.dtype)
    )


def laid(weight: Tensor) -> Tensor:
    """U"""
    return (_both_sides_of_g(weight) @ weight.reshape(-1, 9).T).view(36, *weight.shape[:3])


def conv(*terms: tuple[Tensor, Tensor]) -> Tensor:
    """z, the sum of the convolutions of images x with weights of which U is given."""
    (first, u), *_ = terms
    _, num_tasks, num_out, num_in = u.shape
    z = first.new_empty(*first.shape[:3], num_tasks * num_out)
    maps = compiled.winograd_maps(z.dtype)
    for examples in _parts(z, num_tasks, max(num_in, num_out)):
        tiles: Tensor | None = None
        for x, u in terms:
            tiles = _plus_product(tiles, _tiles(maps.take, x[examples], num_tasks), u.mT)
        _untiled(maps.give, tiles, z[examples], num_tasks)
    return z


class Term(NamedTuple):
    """What a gradient is made of: dz and x, and U.

    Attributes:
        dz: the gradient in the output.
        x: the images, if the gradient in W is asked for.
        u: the weights, if the gradient in x is.
    """

    dz: Tensor
    x: Tensor | None
    u: Tensor | None


def conv_backward(*terms: Term, shape: Sequence[int]) -> tuple[Tensor | None, Tensor | None]:
    """dx and dW, of a given shape, each summed over the terms that ask for it."""
    num_tasks, num_out, num_in = shape[:3]
    dz = terms[0].dz
    dx: Tensor | None = None
    if any(term.u is not None for term in terms):
        dx = dz.new_empty(*dz.shape[:3], num_tasks * num_in)
    maps = compiled.winograd_maps(dz.dtype)
    du: Tensor | None = None
    for examples in _parts(dz, num_tasks, max(num_in, num_out)):
        tiles: Tensor | None = None
        for term in terms:
            dtiles = _tiles(maps.take_back, term.dz[examples], num_tasks)
            if term.x is not None:
                du = _plus_product(du, dtiles.mT, _tiles(maps.take, term.x[examples], num_tasks))
            if term.u is not None:
                tiles = _plus_product(tiles, dtiles, term.u)
        if dx is not None:
            _untiled(maps.give_back, tiles, dx[examples], num_tasks)
    if du is None:
        return dx, None
    dw = (_both_sides_of_g(du).T @ du.view(36, -1)).view(3, 3, *shape[:3])
    return dx, dw.permute(2, 3, 4, 0, 1)


def _both_sides_of_g(like: Tensor) -> Tensor:
    """G on both sides of a matrix that is written as a vector, ``[36, 9]``."""
    return torch.from_numpy(compiled.winograd_maps(like.dtype).g)


def _plus_product(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    """The sum, in the place of the first, of it and a product of every place and task."""
    left, right = left.flatten(0, 1), right.flatten(0, 1)
    return torch.bmm(left, right) if total is None else total.baddbmm_(left, right)


def _num_tiles(images: Tensor) -> int:
    """Of one task."""
    num_examples, height, width, _ = images.shape
    return num_examples * ((height + 3) // 4) * ((width + 3) // 4)


def _parts(images: Tensor, num_tasks: int, num_channels: int) -> Iterator[slice]:
    """The examples, as many at once as fit, and in each part as many as in the others."""
    values = 36 * num_tasks * _num_tiles(images) * num_channels
    num_parts = max(1, min(len(images), -(-values // _MOST_VALUES)))
    for part in range(num_parts):
        yield slice(len(images) * part // num_parts, len(images) * (part + 1) // num_parts)


def _tiles(take: Any, images: Tensor, num_tasks: int) -> Tensor:
    num_channels = images.shape[3] // num_tasks
    tiles = images.new_empty(36, num_tasks, _num_tiles(images), num_channels)
    take(compiled.array(images.flatten(2)), tiles.numpy())
    return tiles


def _untiled(give: Any, products: Tensor | None, images: Tensor, num_tasks: int) -> None:
    assert products is not None
    give(images.flatten(2).numpy(), products.unflatten(0, (36, num_tasks)).numpy())
