"""The four passes of `alfa.ops.stages._norm`, compiled; its equations define the names.

Images are ``[example, height, width, channel]``, and each loop makes one pass over them. The work
and the sums are divided into a fixed number of parts, so results do not depend on the number of
threads. `size` is the side of a pooling window, 1 for none; a last row or column without a whole
window belongs to no window, but enters the statistics. The first `num_norm` examples give the
statistics. `saved` is (z, a, zs, index, mean, scale). All arrays except `index` have one dtype.
"""

import numba
import numpy as np

from alfa.ops._compiled import JIT_OPTIONS

PARTS = 16

_jit = numba.njit(parallel=True, **JIT_OPTIONS)
_inline = numba.njit(**JIT_OPTIONS)


@_inline
def _rows(images):
    """Reshape to ``[row, channel]``."""
    return images.reshape(images.size // images.shape[3], images.shape[3])


@_inline
def _window_row(row, shape, size):
    """Return the example of a row of windows, its number there, and its first and last line."""
    num_rows = shape[1] // size
    example, i = row // num_rows, row % num_rows
    return example, i, size * i, shape[1] if i == num_rows - 1 else size * (i + 1)


@_jit
def _select(z, size, num_norm, sign, shift, sums, selected, index):
    """Compute the sums of z - shift and of its square, and select the largest sign * z.

    `index` is the place in the window, counted along its rows. The first of equal values and any
    NaN are selected. Without windows, the caller uses z itself.
    """
    num_examples, height, width, num_channels = z.shape
    num_rows = num_examples * (height // size)
    for part in numba.prange(PARTS):
        first, second = np.zeros(num_channels, z.dtype), np.zeros(num_channels, z.dtype)
        total = np.zeros((2, num_channels))
        for row in range(part * num_rows // PARTS, (part + 1) * num_rows // PARTS):
            example, i, top, end = _window_row(row, z.shape, size)
            if example < num_norm:
                first[:] = 0
                second[:] = 0
                for h in range(top, end):
                    for w in range(width):
                        for c in range(num_channels):
                            shifted = z[example, h, w, c] - shift[c]
                            first[c] += shifted
                            second[c] += shifted * shifted
                for c in range(num_channels):
                    total[0, c] += first[c]
                    total[1, c] += second[c]
            if size == 2:
                for j in range(width // 2):
                    for c in range(num_channels):
                        best, best_place = z[example, top, 2 * j, c], 0
                        for place in range(1, 4):
                            value = z[example, top + place // 2, 2 * j + place % 2, c]
                            if value * sign[c] > best * sign[c] or value != value:
                                best, best_place = value, place
                        selected[example, i, j, c] = best
                        index[example, i, j, c] = best_place
        sums[part] = total


@_jit
def _finish(saved, gamma, beta, slope):
    """Compute the output a."""
    _, a, zs, _, mean, scale = saved
    out, zs = _rows(a), _rows(zs)
    num_rows, num_channels = zs.shape
    for part in numba.prange(PARTS):
        for row in range(part * num_rows // PARTS, (part + 1) * num_rows // PARTS):
            for c in range(num_channels):
                y = gamma[c] * ((zs[row, c] - mean[c]) * scale[c]) + beta[c]
                out[row, c] = y if y > 0 else y * slope


@_jit
def _sums_of_gradient(da, saved, slope, sums):
    """Compute the sums of u = s da and of u xs."""
    _, a, zs, _, mean, scale = saved
    da, a, zs = _rows(da), _rows(a), _rows(zs)
    num_rows, num_channels = a.shape
    for part in numba.prange(PARTS):
        total = np.zeros((2, num_channels))
        for row in range(part * num_rows // PARTS, (part + 1) * num_rows // PARTS):
            for c in range(num_channels):
                u = da[row, c] if a[row, c] > 0 else da[row, c] * slope
                total[0, c] += u
                total[1, c] += u * ((zs[row, c] - mean[c]) * scale[c])
        sums[part] = total


@_jit
def _sums_of_tangent(zdot, size, num_norm, saved, sums, selected):
    """Compute the sums of zdot and of zdot xhat, and P zdot."""
    z, _, _, index, mean, scale = saved
    num_examples, height, width, num_channels = z.shape
    num_rows = num_examples * (height // size)
    for part in numba.prange(PARTS):
        first, second = np.zeros(num_channels, z.dtype), np.zeros(num_channels, z.dtype)
        total = np.zeros((2, num_channels))
        for row in range(part * num_rows // PARTS, (part + 1) * num_rows // PARTS):
            example, i, top, end = _window_row(row, z.shape, size)
            if example < num_norm:
                first[:] = 0
                second[:] = 0
                for h in range(top, end):
                    for w in range(width):
                        for c in range(num_channels):
                            value = zdot[example, h, w, c]
                            first[c] += value
                            second[c] += value * ((z[example, h, w, c] - mean[c]) * scale[c])
                for c in range(num_channels):
                    total[0, c] += first[c]
                    total[1, c] += second[c]
            if size == 2:
                for j in range(width // 2):
                    for c in range(num_channels):
                        chosen = zdot[example, top, 2 * j, c]
                        for place in range(1, 4):
                            value = zdot[example, top + place // 2, 2 * j + place % 2, c]
                            chosen = value if index[example, i, j, c] == place else chosen
                        selected[example, i, j, c] = chosen
        sums[part] = total


@_jit
def _finish_tangent(selected, saved, da, k, slope, sums, adot):
    """Compute adot = s (k0 + k1 xs + k2 selected) and the sum of u selected."""
    _, a, zs, _, mean, scale = saved
    selected, da, a, zs, out = _rows(selected), _rows(da), _rows(a), _rows(zs), _rows(adot)
    num_rows, num_channels = a.shape
    for part in numba.prange(PARTS):
        total = np.zeros(num_channels)
        one = a.dtype.type(1)
        for row in range(part * num_rows // PARTS, (part + 1) * num_rows // PARTS):
            for c in range(num_channels):
                s = one if a[row, c] > 0 else slope
                xs = (zs[row, c] - mean[c]) * scale[c]
                out[row, c] = s * (k[0, c] + k[1, c] * xs + k[2, c] * selected[row, c])
                total[c] += s * da[row, c] * selected[row, c]
        sums[part, 0] = total


@_jit
def _input_gradient(zdot, size, num_norm, saved, k, da, dadot, slope, out):
    """Compute [norm] (k0 + k1 xhat + k2 zdot) + P' s (k3 dadot + k4 da).

    `zdot` and `dadot` may be None; the compiler then omits their terms.
    """
    z, a, _, index, mean, scale = saved
    num_examples, height, width, num_channels = z.shape
    num_rows = num_examples * (height // size)
    for part in numba.prange(PARTS):
        put = np.zeros(num_channels, z.dtype)
        nothing = z.dtype.type(0)
        for row in range(part * num_rows // PARTS, (part + 1) * num_rows // PARTS):
            example, i, top, end = _window_row(row, z.shape, size)
            if example < num_norm:
                for h in range(top, end):
                    for w in range(width):
                        for c in range(num_channels):
                            xhat = (z[example, h, w, c] - mean[c]) * scale[c]
                            value = k[0, c] + k[1, c] * xhat
                            if zdot is not None:
                                value += k[2, c] * zdot[example, h, w, c]
                            out[example, h, w, c] = value
            else:
                out[example, top:end] = 0
            for j in range(width // size):
                for c in range(num_channels):
                    value = k[4, c] * da[example, i, j, c]
                    if dadot is not None:
                        value += k[3, c] * dadot[example, i, j, c]
                    put[c] = value if a[example, i, j, c] > 0 else value * slope
                if size == 1:
                    for c in range(num_channels):
                        out[example, top, j, c] += put[c]
                else:
                    for place in range(4):
                        h, w = top + place // 2, 2 * j + place % 2
                        for c in range(num_channels):
                            here = index[example, i, j, c] == place
                            out[example, h, w, c] += put[c] if here else nothing


@_inline
def _total(sums, which, c):
    total = 0.0
    for part in range(PARTS):
        total += sums[part, which, c]
    return total


@_inline
def max_pool(image, selected, index):
    """Write the largest value of every 2 x 2 window, and its place."""
    ones = np.ones(image.shape[3], image.dtype)
    sums = np.empty((PARTS, 2, len(ones)))
    _select(image, 2, 0, ones, ones, sums, selected, index)


@_inline
def forward(size, num_norm, slope, saved, gamma, beta, eps):
    """Write all of `saved` except z."""
    z, _, zs, index, mean, scale = saved
    _, height, width, num_channels = z.shape
    num = num_norm * height * width
    sums = np.empty((PARTS, 2, num_channels))
    # If gamma is 0, all values of a window are equal, and the first is selected.
    sign = np.sign(gamma)
    # Sums of squares are taken around a value of the channel, or they would cancel.
    shift = z[0, 0, 0].copy()
    _select(z, size, num_norm, sign, shift, sums, zs, index)
    for c in range(num_channels):
        first, second = _total(sums, 0, c) / num, _total(sums, 1, c) / num
        mean[c] = first + shift[c]
        scale[c] = 1 / np.sqrt(max(second - first * first, 0.0) + eps)
    _finish(saved, gamma, beta, z.dtype.type(slope))


@_inline
def backward(size, num_norm, slope, saved, gamma, da, dz, s):
    """Write dz and s, which is S1 and S2."""
    z, _, _, _, _, scale = saved
    _, height, width, num_channels = z.shape
    num, typed_slope = num_norm * height * width, z.dtype.type(slope)
    sums, k = np.empty((PARTS, 2, num_channels)), np.empty((5, num_channels), z.dtype)
    _sums_of_gradient(da, saved, typed_slope, sums)
    for c in range(num_channels):
        s[0, c], s[1, c] = _total(sums, 0, c), _total(sums, 1, c)
        k[4, c] = gamma[c] * scale[c]
        k[0, c], k[1, c] = -k[4, c] * s[0, c] / num, -k[4, c] * s[1, c] / num
    _input_gradient(None, size, num_norm, saved, k, da, None, typed_slope, dz)


@_inline
def tangent(size, num_norm, slope, saved, gamma, zdot, gammadot, betadot, da, moments, adot):
    """Write adot and the moments: m1, m2, and the sum of u P zdot."""
    z, _, zs, _, _, scale = saved
    _, height, width, num_channels = z.shape
    num = num_norm * height * width
    sums, k = np.empty((PARTS, 2, num_channels)), np.empty((3, num_channels), z.dtype)
    selected = zdot if size == 1 else np.empty_like(zs)
    _sums_of_tangent(zdot, size, num_norm, saved, sums, selected)
    for c in range(num_channels):
        m1, m2 = _total(sums, 0, c) / num, _total(sums, 1, c) / num
        moments[0, c], moments[1, c] = m1, m2
        k[2, c] = gamma[c] * scale[c]
        k[0, c], k[1, c] = betadot[c] - k[2, c] * m1, gammadot[c] - k[2, c] * m2
    _finish_tangent(selected, saved, da, k, z.dtype.type(slope), sums, adot)
    for c in range(num_channels):
        moments[2, c] = _total(sums, 0, c)


@_inline
def backward_tangent(
    size, num_norm, slope, saved, gamma, zdot, gammadot, da, dadot, moments, s, dzdot, sdot
):
    """Write dzdot and sdot, which is S1dot and S2dot."""
    z, _, _, _, _, scale = saved
    _, height, width, num_channels = z.shape
    num, typed_slope = num_norm * height * width, z.dtype.type(slope)
    sums, k = np.zeros((PARTS, 2, num_channels)), np.empty((5, num_channels), z.dtype)
    if dadot is not None:
        _sums_of_gradient(dadot, saved, typed_slope, sums)
    for c in range(num_channels):
        r, m1, m2 = scale[c], moments[0, c], moments[1, c]
        sdot[0, c] = _total(sums, 0, c)
        sdot[1, c] = _total(sums, 1, c) + r * (moments[2, c] - m1 * s[0, c] - m2 * s[1, c])
        k3 = gamma[c] * r
        k4 = gammadot[c] * r - k3 * r * m2
        k[0, c] = -(k3 * sdot[0, c] + k4 * s[0, c] - k3 * r * m1 * s[1, c]) / num
        k[1, c] = -(k3 * sdot[1, c] + k4 * s[1, c] - k3 * r * m2 * s[1, c]) / num
        k[2, c] = -k3 * r * s[1, c] / num
        k[3, c], k[4, c] = k3, k4
    _input_gradient(zdot, size, num_norm, saved, k, da, dadot, typed_slope, dzdot)
