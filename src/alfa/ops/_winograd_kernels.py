"""The four maps between images and tiles of `alfa.ops._winograd`, compiled.

Images are ``[example, height, width * task * channel]`` and tiles ``[36, task, tile, channel]``,
tiles in the order example, row, column. A map multiplies the lines of a window by a small matrix
and then its columns. The threads share the rows of tiles, in a fixed number of parts, and every
place is written once.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from alfa.ops._compiled import FASTMATH

PARTS = 16

# Number of neighboring values that are loaded, computed, and stored at once.
LANES = 8

# The points of the interpolation are 0, P, -P, Q, -Q, and infinity: with these, which are exact in
# binary, single precision loses half as much as with the usual 1 and 2.
P, Q = 0.625, 1.5

# Each point has a row of A, a column of B, and a row of G.
A = np.array([[1, 0, 0, 0], *([1, p, p**2, p**3] for p in (P, -P, Q, -Q)), [0, 0, 0, 1]])
B = np.array(
    [
        [P**2 * Q**2, 0, -(P**2) - Q**2, 0, 1, 0],
        [0, -P * Q**2, -(Q**2), P, 1, 0],
        [0, P * Q**2, -(Q**2), -P, 1, 0],
        [0, -Q * P**2, -(P**2), Q, 1, 0],
        [0, Q * P**2, -(P**2), -Q, 1, 0],
        [0, P**2 * Q**2, 0, -(P**2) - Q**2, 0, 1],
    ]
).T
_PAIRS = (P, Q), (-P, Q), (Q, P), (-Q, P)
G = np.array(
    [
        [1 / (P * Q) ** 2, 0, 0],
        *(np.array([1, p, p**2]) / (2 * p**2 * (p**2 - q**2)) for p, q in _PAIRS),
        [0, 0, 1],
    ]
)

_options = {"cache": True, "error_model": "numpy", "fastmath": {*FASTMATH}}
Map = Callable[[np.ndarray, np.ndarray], None]


def _times(matrix, lanes, *, adds=False):
    """Return a function that multiplies a vector by a matrix, for several neighbors at once.

    It takes the source array, the flat index of the first value, and the distance between values,
    then the same for the target, which is overwritten or, with `adds`, added to. All values are
    loaded before any is stored, so both may be the same array. The compiler would not vectorize
    this by itself, because it cannot know that loads and stores do not overlap.
    """

    @intrinsic
    def times(_, source, at, step, target, to, far):
        def generate(context, builder, signature, given):
            of_source, of_target = signature.args[0], signature.args[3]
            number = context.get_value_type(of_source.dtype)
            vector = ir.VectorType(number, lanes) if lanes > 1 else number
            size = context.get_abi_sizeof(number)

            def places(of_array, array, first, distance, count):
                data = context.make_array(of_array)(context, builder, array).data
                for k in range(count):
                    index = builder.add(first, builder.mul(distance, distance.type(k)))
                    yield builder.bitcast(builder.gep(data, [index]), vector.as_pointer())

            def constant(value):
                return ir.Constant(vector, [value] * lanes if lanes > 1 else value)

            num_out, num_in = matrix.shape
            loaded = [
                builder.load(place, align=size) for place in places(of_source, *given[:3], num_in)
            ]
            stored = list(places(of_target, *given[3:], num_out))
            results = []
            for row, place in zip(matrix, stored, strict=True):
                total = builder.load(place, align=size) if adds else None
                for factor, value in zip(row, loaded, strict=True):
                    if factor == 0:
                        continue
                    term = value
                    if factor != 1:
                        term = builder.fmul(value, constant(factor), flags=FASTMATH)
                    total = term if total is None else builder.fadd(total, term, flags=FASTMATH)
                results.append(total)
            for result, place in zip(results, stored, strict=True):
                builder.store(result, place, align=size)
            return context.get_dummy_value()

        return types.void(source, at, step, target, to, far), generate

    return times


def _all_lanes(matrix, **options):
    """Return the same function for any number of neighbors, which is its last argument."""
    wide, single = _times(matrix, LANES, **options), _times(matrix, 1, **options)

    @numba.njit(inline="always")
    def times(source, at, step, target, to, far, count):
        rest = count % LANES
        for c in range(0, count - rest, LANES):
            wide(source, at + c, step, target, to + c, far)
        for c in range(count - rest, count):
            single(source, at + c, step, target, to + c, far)

    return times


_by_a, _by_a_back = _all_lanes(A), _all_lanes(A.T)
_by_b_back, _by_b_inside = _all_lanes(B.T), _all_lanes(B[1:5])
_add_by_b, _add_by_b_first, _add_by_b_last = (
    _all_lanes(part, adds=True) for part in (B, B[:1], B[5:])
)


@numba.njit(**_options)
def _measure(images, tiles):
    """Return rows and columns of tiles, and the values in a line, a pixel, and a place."""
    _, height, line = images.shape
    _, num_tasks, num_tiles, num_channels = tiles.shape
    pixel = num_tasks * num_channels
    return (height + 3) // 4, (line // pixel + 3) // 4, line, pixel, num_tiles * pixel


@numba.njit(inline="always")
def _to_tiles(images, tiles, begin, end, times, edge):
    """Write M d M' of the window d around every block, with M the matrix of `times`.

    A window is its block with `edge` more places on each side, which are 0 beyond the image.
    """
    _, num_tasks, num_tiles, num_channels = tiles.shape
    down, across, line, pixel, plane = _measure(images, tiles)
    first, width = edge * pixel, (4 * across + 2 * edge) * pixel
    # Values beyond the image stay 0.
    lines = np.zeros((6, width), images.dtype)
    for row in range(begin, end):
        example, i = row // down, row % down
        for a in range(4 + 2 * edge):
            h = 4 * i - edge + a
            if 0 <= h < images.shape[1]:
                lines[a, first : first + line] = images[example, h]
            else:
                lines[a] = 0
        times(lines, 0, width, lines, 0, width, width)
        for j in range(across):
            for task in range(num_tasks):
                at = 4 * j * pixel + task * num_channels
                to = (task * num_tiles + row * across + j) * num_channels
                for a in range(6):
                    here, there = a * width + at, 6 * a * plane + to
                    times(lines, here, pixel, tiles, there, plane, num_channels)


@numba.njit(inline="always")
def _from_tiles(images, tiles, begin, end, times_down, times_across, edge):
    """Write M' m M of every tile m, summed where windows overlap: the transpose of `_to_tiles`.

    With an edge, the first line of a window is the last of the block above, and its last line the
    first of the block below.
    """
    _, num_tasks, num_tiles, num_channels = tiles.shape
    down, across, line, pixel, plane = _measure(images, tiles)
    first, width, far = edge * pixel, (4 * across + 2 * edge) * pixel, 6 * num_channels
    lines, m = np.empty((4, width), images.dtype), np.empty((4, far), images.dtype)
    for row in range(begin, end):
        example, i = row // down, row % down
        if edge:
            lines[:] = 0
        for j in range(across):
            for task in range(num_tasks):
                tile = task * num_tiles + row * across + j
                to = 4 * j * pixel + task * num_channels
                for b in range(6):
                    here, there = b * plane + tile * num_channels, b * num_channels
                    times_down(tiles, here, 6 * plane, m, there, far, num_channels)
                    if edge and i > 0:
                        above = here - across * num_channels
                        _add_by_b_last(tiles, above, 6 * plane, m, there, far, num_channels)
                    if edge and i < down - 1:
                        below, there = here + across * num_channels, there + 3 * far
                        _add_by_b_first(tiles, below, 6 * plane, m, there, far, num_channels)
                for a in range(4):
                    here, there = a * far, a * width + to
                    times_across(m, here, num_channels, lines, there, pixel, num_channels)
        for a in range(min(4, images.shape[1] - 4 * i)):
            images[example, 4 * i + a] = lines[a, first : first + line]


def _input_to_tiles(x, tiles, begin, end):
    """Write B' d B of the 6 x 6 window d around every block of x."""
    _to_tiles(x, tiles, begin, end, _by_b_back, 1)


def _tiles_to_output(z, tiles, begin, end):
    """Write A' m A of every tile m, which are the blocks of z."""
    _from_tiles(z, tiles, begin, end, _by_a_back, _by_a_back, 0)


def _output_grad_to_tiles(dz, tiles, begin, end):
    """Write A b A' of every block b of dz: the transpose of `_tiles_to_output`."""
    _to_tiles(dz, tiles, begin, end, _by_a, 0)


def _tiles_to_input_grad(dx, tiles, begin, end):
    """Write the sum of B m B' of every tile m: the transpose of `_input_to_tiles`."""
    _from_tiles(dx, tiles, begin, end, _by_b_inside, _add_by_b, 1)


@numba.njit(parallel=True, cache=True, nogil=True)
def _parallel(kernel, images, tiles):
    num_examples, height, _ = images.shape
    num_rows = num_examples * ((height + 3) // 4)
    for part in numba.prange(PARTS):
        begin, end = part * num_rows // PARTS, (part + 1) * num_rows // PARTS
        if begin < end:
            kernel(images, tiles, begin, end)


class Kernels(NamedTuple):
    """The maps between images and tiles, which do not check that arrays are contiguous."""

    input_to_tiles: Map  # x to X
    tiles_to_output: Map  # Z to z
    output_grad_to_tiles: Map  # dz to dZ
    tiles_to_input_grad: Map  # dX to dx
    g: np.ndarray  # multiplies a matrix, written as a vector, by G on both sides, [36, 9]


@functools.cache
def kernels(dtype):
    """Compile the kernels for a dtype.

    `_parallel` calls them by their address, so numba compiles it once; calls by name would compile
    it with each of the four maps, which takes four times as long.
    """
    number = numba.from_dtype(np.dtype(dtype))
    arrays = types.Array(number, 3, "C"), types.Array(number, 4, "C")
    signature = types.void(*arrays, types.intp, types.intp)
    functions = _input_to_tiles, _tiles_to_output, _output_grad_to_tiles, _tiles_to_input_grad
    addresses = [numba.cfunc(signature, **_options)(function) for function in functions]
    arguments = (types.FunctionType(signature), *arrays)
    _parallel.compile(arguments)
    parallel = _parallel.get_overload(arguments)
    return Kernels(
        *(functools.partial(parallel, address) for address in addresses),
        np.kron(G, G).astype(dtype),
    )
