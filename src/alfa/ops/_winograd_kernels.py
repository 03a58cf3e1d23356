"""The four maps between images and tiles of `alfa.ops._winograd`, compiled; see there.

Images are ``[example, height, width, task, channel]`` and tiles ``[16, task, tile, channel]``,
tiles in the order example, row, column. Every map goes over the rows of tiles, which are dealt to
the threads in a fixed number of parts, and writes every place once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np
from numba import types

PARTS = 16

# Sums may be reordered for speed; not-a-number must stay what it is.
_options = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
}
Map = Callable[[np.ndarray, np.ndarray], None]


def _take(x, tiles, begin, end):
    """B' d B of the 4 x 4 window d around every block of x; 0 beyond the edge."""
    _, height, width, num_tasks, num_channels = x.shape
    down, across = (height + 1) // 2, (width + 1) // 2
    d = np.empty((4, 4, num_channels), x.dtype)
    for row in range(begin, end):
        example, i = row // down, row % down
        for task in range(num_tasks):
            for j in range(across):
                for a in range(4):
                    h = 2 * i - 1 + a
                    for b in range(4):
                        w = 2 * j - 1 + b
                        if 0 <= h < height and 0 <= w < width:
                            for c in range(num_channels):
                                d[a, b, c] = x[example, h, w, task, c]
                        else:
                            for c in range(num_channels):
                                d[a, b, c] = 0
                for b in range(4):
                    for c in range(num_channels):
                        d0, d1, d2, d3 = d[0, b, c], d[1, b, c], d[2, b, c], d[3, b, c]
                        d[0, b, c] = d0 - d2
                        d[1, b, c] = d1 + d2
                        d[2, b, c] = d2 - d1
                        d[3, b, c] = d1 - d3
                tile = row * across + j
                for a in range(4):
                    for c in range(num_channels):
                        d0, d1, d2, d3 = d[a, 0, c], d[a, 1, c], d[a, 2, c], d[a, 3, c]
                        tiles[4 * a, task, tile, c] = d0 - d2
                        tiles[4 * a + 1, task, tile, c] = d1 + d2
                        tiles[4 * a + 2, task, tile, c] = d2 - d1
                        tiles[4 * a + 3, task, tile, c] = d1 - d3


def _give(z, tiles, begin, end):
    """A' m A of every tile m, which are the blocks of z."""
    _, height, width, num_tasks, num_channels = z.shape
    down, across = (height + 1) // 2, (width + 1) // 2
    m = np.empty((2, 4, num_channels), z.dtype)
    for row in range(begin, end):
        example, i = row // down, row % down
        for task in range(num_tasks):
            for j in range(across):
                tile = row * across + j
                for b in range(4):
                    for c in range(num_channels):
                        m1, m2 = tiles[4 + b, task, tile, c], tiles[8 + b, task, tile, c]
                        m[0, b, c] = tiles[b, task, tile, c] + m1 + m2
                        m[1, b, c] = m1 - m2 - tiles[12 + b, task, tile, c]
                for h in range(2 * i, min(2 * i + 2, height)):
                    a = h - 2 * i
                    for c in range(num_channels):
                        z[example, h, 2 * j, task, c] = m[a, 0, c] + m[a, 1, c] + m[a, 2, c]
                    if 2 * j + 1 < width:
                        for c in range(num_channels):
                            odd = m[a, 1, c] - m[a, 2, c] - m[a, 3, c]
                            z[example, h, 2 * j + 1, task, c] = odd


def _take_back(dz, tiles, begin, end):
    """The transpose of `_give`: A b A' of every block b of dz."""
    _, height, width, num_tasks, num_channels = dz.shape
    down, across = (height + 1) // 2, (width + 1) // 2
    d = np.empty((2, 2, num_channels), dz.dtype)
    for row in range(begin, end):
        example, i = row // down, row % down
        for task in range(num_tasks):
            for j in range(across):
                for a in range(2):
                    for b in range(2):
                        if 2 * i + a < height and 2 * j + b < width:
                            for c in range(num_channels):
                                d[a, b, c] = dz[example, 2 * i + a, 2 * j + b, task, c]
                        else:
                            for c in range(num_channels):
                                d[a, b, c] = 0
                tile = row * across + j
                for c in range(num_channels):
                    d0, d1 = d[0, 0, c], d[0, 1, c]
                    tiles[0, task, tile, c] = d0
                    tiles[1, task, tile, c] = d0 + d1
                    tiles[2, task, tile, c] = d0 - d1
                    tiles[3, task, tile, c] = -d1
                for c in range(num_channels):
                    d0, d1 = d[0, 0, c] + d[1, 0, c], d[0, 1, c] + d[1, 1, c]
                    tiles[4, task, tile, c] = d0
                    tiles[5, task, tile, c] = d0 + d1
                    tiles[6, task, tile, c] = d0 - d1
                    tiles[7, task, tile, c] = -d1
                for c in range(num_channels):
                    d0, d1 = d[0, 0, c] - d[1, 0, c], d[0, 1, c] - d[1, 1, c]
                    tiles[8, task, tile, c] = d0
                    tiles[9, task, tile, c] = d0 + d1
                    tiles[10, task, tile, c] = d0 - d1
                    tiles[11, task, tile, c] = -d1
                for c in range(num_channels):
                    d0, d1 = d[1, 0, c], d[1, 1, c]
                    tiles[12, task, tile, c] = -d0
                    tiles[13, task, tile, c] = -d0 - d1
                    tiles[14, task, tile, c] = d1 - d0
                    tiles[15, task, tile, c] = d1


def _give_back(dx, tiles, begin, end):
    """The transpose of `_take`: B m B' of every tile m, summed where windows overlap.

    The first line of a window is the last of the block above, and its last line the first of the
    block below; the same holds for columns.
    """
    _, height, width, num_tasks, num_channels = dx.shape
    down, across = (height + 1) // 2, (width + 1) // 2
    # Of the two lines of a row, after B m: the tiles with one of nothing on either side.
    m = np.zeros((2, across + 2, 4, num_channels), dx.dtype)
    for row in range(begin, end):
        example, i = row // down, row % down
        for task in range(num_tasks):
            for j in range(across):
                tile = row * across + j
                for b in range(4):
                    for c in range(num_channels):
                        m1, m2 = tiles[4 + b, task, tile, c], tiles[8 + b, task, tile, c]
                        m[0, j + 1, b, c] = m1 - m2 + tiles[12 + b, task, tile, c]
                        m[1, j + 1, b, c] = m1 + m2 - tiles[b, task, tile, c]
                    if i > 0:
                        for c in range(num_channels):
                            m[0, j + 1, b, c] -= tiles[12 + b, task, tile - across, c]
                    if i < down - 1:
                        for c in range(num_channels):
                            m[1, j + 1, b, c] += tiles[b, task, tile + across, c]
            for h in range(2 * i, min(2 * i + 2, height)):
                a = h - 2 * i
                for j in range(across):
                    for c in range(num_channels):
                        inner = m[a, j + 1, 1, c] - m[a, j + 1, 2, c] + m[a, j + 1, 3, c]
                        dx[example, h, 2 * j, task, c] = inner - m[a, j, 3, c]
                    if 2 * j + 1 < width:
                        for c in range(num_channels):
                            inner = m[a, j + 1, 1, c] + m[a, j + 1, 2, c] - m[a, j + 1, 0, c]
                            dx[example, h, 2 * j + 1, task, c] = inner + m[a, j + 2, 0, c]


@numba.njit(parallel=True, cache=True, nogil=True)
def _deal(to_rows, images, tiles):
    num_examples, height, _, _, _ = images.shape
    num_rows = num_examples * ((height + 1) // 2)
    for part in numba.prange(PARTS):
        to_rows(images, tiles, part * num_rows // PARTS, (part + 1) * num_rows // PARTS)


class Maps(NamedTuple):
    """From images to tiles, and from tiles to images; each takes images and tiles, contiguous."""

    take: Map
    give: Map
    take_back: Map
    give_back: Map


@functools.cache
def maps(dtype):
    """Compiled for numbers of this type.

    What numba calls by its address it compiles once; what it calls by name, again with all that
    calls it, which would take four times as long here.
    """
    number = numba.from_dtype(np.dtype(dtype))
    arrays = types.Array(number, 5, "C"), types.Array(number, 4, "C")
    signature = types.void(*arrays, types.intp, types.intp)
    to_rows = [
        numba.cfunc(signature, **_options)(f) for f in (_take, _give, _take_back, _give_back)
    ]
    dealt = (types.FunctionType(signature), *arrays)
    _deal.compile(dealt)
    deal = _deal.get_overload(dealt)
    return Maps(*(functools.partial(deal, one) for one in to_rows))
