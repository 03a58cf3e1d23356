"""Compiled passes over channels-last activations, for `alfa.ops._norm`.

Each makes one pass over the large arrays. Rows of windows are dealt to the threads; sums are
taken in a fixed number of parts, so that they do not depend on how many threads there are.
"""

from __future__ import annotations

import numba
import numpy as np

PARTS = 16

# Sums may be reordered for speed; not-a-number must stay what it is.
_jit = numba.njit(
    cache=True,
    nogil=True,
    parallel=True,
    error_model="numpy",
    fastmath={"reassoc", "contract", "nsz", "arcp"},
)


@_jit
def select(z, sign, shift, sums, selected, index):
    """Sums of z - shift and of its square, and the largest sign * z of every 2 x 2 window.

    `index` is the place in the window, 0 to 3; of equals the first counts. A last row or column
    without a partner belongs to no window, but to the sums.
    """
    num_examples, height, width, num_channels = z.shape
    num_rows = num_examples * (height // 2)
    for part in numba.prange(PARTS):
        first, second = np.zeros(num_channels, z.dtype), np.zeros(num_channels, z.dtype)
        total = np.zeros((2, num_channels))
        for row in range(part * num_rows // PARTS, (part + 1) * num_rows // PARTS):
            example, i = row // (height // 2), row % (height // 2)
            first[:] = 0
            second[:] = 0
            end = height if i == height // 2 - 1 else 2 * i + 2
            for h in range(2 * i, end):
                for w in range(width):
                    for c in range(num_channels):
                        shifted = z[example, h, w, c] - shift[c]
                        first[c] += shifted
                        second[c] += shifted * shifted
            for c in range(num_channels):
                total[0, c] += first[c]
                total[1, c] += second[c]
            for j in range(width // 2):
                for c in range(num_channels):
                    best, place = z[example, 2 * i, 2 * j, c], 0
                    other = z[example, 2 * i, 2 * j + 1, c]
                    if other * sign[c] > best * sign[c]:
                        best, place = other, 1
                    other = z[example, 2 * i + 1, 2 * j, c]
                    if other * sign[c] > best * sign[c]:
                        best, place = other, 2
                    other = z[example, 2 * i + 1, 2 * j + 1, c]
                    if other * sign[c] > best * sign[c]:
                        best, place = other, 3
                    selected[example, i, j, c] = best
                    index[example, i, j, c] = place
        for c in range(num_channels):
            sums[part, 0, c] = total[0, c]
            sums[part, 1, c] = total[1, c]


@_jit
def sums_of_tangent(z, tangent, mean, scale, index, sums, selected):
    """Sums of the tangent and of its product with xhat, and the tangent where z was selected."""
    num_examples, height, width, num_channels = z.shape
    num_rows = num_examples * (height // 2)
    for part in numba.prange(PARTS):
        first, second = np.zeros(num_channels, z.dtype), np.zeros(num_channels, z.dtype)
        total = np.zeros((2, num_channels))
        for row in range(part * num_rows // PARTS, (part + 1) * num_rows // PARTS):
            example, i = row // (height // 2), row % (height // 2)
            first[:] = 0
            second[:] = 0
            end = height if i == height // 2 - 1 else 2 * i + 2
            for h in range(2 * i, end):
                for w in range(width):
                    for c in range(num_channels):
                        t = tangent[example, h, w, c]
                        first[c] += t
                        second[c] += t * ((z[example, h, w, c] - mean[c]) * scale[c])
            for c in range(num_channels):
                total[0, c] += first[c]
                total[1, c] += second[c]
            for j in range(width // 2):
                for c in range(num_channels):
                    place = index[example, i, j, c]
                    selected[example, i, j, c] = tangent[
                        example, 2 * i + place // 2, 2 * j + place % 2, c
                    ]
        for c in range(num_channels):
            sums[part, 0, c] = total[0, c]
            sums[part, 1, c] = total[1, c]


@_jit
def spread(z, mean, scale, constant, slope, pooled, index, out):
    """constant + slope * xhat everywhere, and `pooled` added at the selected places."""
    num_examples, height, width, num_channels = z.shape
    for row in numba.prange(num_examples * (height // 2)):
        example, i = row // (height // 2), row % (height // 2)
        end = height if i == height // 2 - 1 else 2 * i + 2
        for h in range(2 * i, end):
            for w in range(width):
                for c in range(num_channels):
                    xhat = (z[example, h, w, c] - mean[c]) * scale[c]
                    out[example, h, w, c] = constant[c] + slope[c] * xhat
        _add_selected(pooled[example, i], index[example, i], out[example, 2 * i : 2 * i + 2])


@_jit
def spread_with_tangent(
    z, tangent, mean, scale, constant, slope, tangent_slope, pooled, index, out
):
    """As `spread`, with tangent_slope * tangent added everywhere."""
    num_examples, height, width, num_channels = z.shape
    for row in numba.prange(num_examples * (height // 2)):
        example, i = row // (height // 2), row % (height // 2)
        end = height if i == height // 2 - 1 else 2 * i + 2
        for h in range(2 * i, end):
            for w in range(width):
                for c in range(num_channels):
                    xhat = (z[example, h, w, c] - mean[c]) * scale[c]
                    out[example, h, w, c] = (
                        constant[c] + slope[c] * xhat + tangent_slope[c] * tangent[example, h, w, c]
                    )
        _add_selected(pooled[example, i], index[example, i], out[example, 2 * i : 2 * i + 2])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _add_selected(pooled, index, out):
    for j in range(pooled.shape[0]):
        for place in range(4):
            h, w = place // 2, 2 * j + place % 2
            for c in range(pooled.shape[1]):
                out[h, w, c] += pooled[j, c] * (index[j, c] == place)
