"""The four passes of `alfa.ops._norm`, compiled; see there for the equations and their names.

Large arrays are ``[example, height, width, channel]``, and each loop makes one pass over them.
Arrays of the size of the pooled map are ``[row, channel]``, rows in the order example, height,
width. The work and the sums are divided into a fixed number of parts, so the result does not
depend on the number of threads. `size` is the side of a pooling window, 1 for none; a last row or
column without a whole window belongs to no window, but to the statistics. The first `num_norm`
examples give the statistics. All numbers have the dtype of the arrays, including `slope`. `saved`
is (a, zs, index, mean, scale).
"""

from __future__ import annotations

import numba
import numpy as np

from alfa.ops._compiled import JIT_OPTIONS

PARTS = 16

_jit = numba.njit(parallel=True, **JIT_OPTIONS)
_inline = numba.njit(**JIT_OPTIONS)


@_inline
def _place(row, shape, size):
    """The example of a row of windows, and its first and last line there."""
    _, height, _, _ = shape
    num_rows = height // size
    example, i = row // num_rows, row % num_rows
    end = height if i == num_rows - 1 else (i + 1) * size
    return example, size * i, end


@_jit
def select(z, size, num_norm, sign, shift, sums, selected, index):
    """Sums of z - shift and of its square, and the largest sign * z of every window.

    `index` is the place in the window, counted along its rows. The first of equal values and any
    NaN are selected. Without windows, the caller uses z itself.
    """
    num_examples, height, width, num_channels = z.shape
    num_rows, across = num_examples * (height // size), width // size
    for part in numba.prange(PARTS):
        first, second = np.zeros(num_channels, z.dtype), np.zeros(num_channels, z.dtype)
        total = np.zeros((2, num_channels))
        for row in range(part * num_rows // PARTS, (part + 1) * num_rows // PARTS):
            example, top, end = _place(row, z.shape, size)
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
                for j in range(across):
                    at = row * across + j
                    for c in range(num_channels):
                        best, place = z[example, top, 2 * j, c], 0
                        other = z[example, top, 2 * j + 1, c]
                        if other * sign[c] > best * sign[c] or other != other:
                            best, place = other, 1
                        other = z[example, top + 1, 2 * j, c]
                        if other * sign[c] > best * sign[c] or other != other:
                            best, place = other, 2
                        other = z[example, top + 1, 2 * j + 1, c]
                        if other * sign[c] > best * sign[c] or other != other:
                            best, place = other, 3
                        selected[at, c] = best
                        index[at, c] = place
        sums[part] = total


@_jit
def _finish(zs, mean, scale, gamma, beta, slope, out):
    """The output."""
    num_rows, num_channels = zs.shape
    for part in numba.prange(PARTS):
        for row in range(part * num_rows // PARTS, (part + 1) * num_rows // PARTS):
            for c in range(num_channels):
                y = gamma[c] * ((zs[row, c] - mean[c]) * scale[c]) + beta[c]
                out[row, c] = y if y > 0 else y * slope


@_jit
def _sums_of_gradient(da, a, zs, mean, scale, slope, sums):
    """Sums of u = s da, and of u xs."""
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
def _sums_of_tangent(z, zdot, size, num_norm, mean, scale, index, sums, selected):
    """Sums of the tangent and of its product with xhat, and the tangent at the selected places."""
    num_examples, height, width, num_channels = z.shape
    num_rows, across = num_examples * (height // size), width // size
    for part in numba.prange(PARTS):
        first, second = np.zeros(num_channels, z.dtype), np.zeros(num_channels, z.dtype)
        total = np.zeros((2, num_channels))
        for row in range(part * num_rows // PARTS, (part + 1) * num_rows // PARTS):
            example, top, end = _place(row, z.shape, size)
            if example < num_norm:
                first[:] = 0
                second[:] = 0
                for h in range(top, end):
                    for w in range(width):
                        for c in range(num_channels):
                            tangent = zdot[example, h, w, c]
                            first[c] += tangent
                            second[c] += tangent * ((z[example, h, w, c] - mean[c]) * scale[c])
                for c in range(num_channels):
                    total[0, c] += first[c]
                    total[1, c] += second[c]
            if size == 2:
                for j in range(across):
                    at = row * across + j
                    for c in range(num_channels):
                        place = index[at, c]
                        tangent = zdot[example, top, 2 * j, c]
                        other = zdot[example, top, 2 * j + 1, c]
                        tangent = other if place == 1 else tangent
                        other = zdot[example, top + 1, 2 * j, c]
                        tangent = other if place == 2 else tangent
                        other = zdot[example, top + 1, 2 * j + 1, c]
                        selected[at, c] = other if place == 3 else tangent
        sums[part] = total


@_jit
def _finish_tangent(selected, zs, mean, scale, a, da, k0, k1, k2, slope, sums, out):
    """s (k0 + k1 xs + k2 selected), and the sum of u selected."""
    num_rows, num_channels = a.shape
    for part in numba.prange(PARTS):
        total = np.zeros(num_channels)
        one = a.dtype.type(1)
        for row in range(part * num_rows // PARTS, (part + 1) * num_rows // PARTS):
            for c in range(num_channels):
                s = one if a[row, c] > 0 else slope
                xs = (zs[row, c] - mean[c]) * scale[c]
                out[row, c] = s * (k0[c] + k1[c] * xs + k2[c] * selected[row, c])
                total[c] += s * da[row, c] * selected[row, c]
        sums[part, 0] = total


@_jit
def _input_gradient(z, zdot, size, num_norm, saved, k0, k1, k2, da, dadot, k3, k4, slope, out):
    """k0 + k1 xhat + k2 zdot everywhere, plus k3 s dadot + k4 s da at the selected places.

    `zdot` and `dadot` may be None; the compiler then omits their terms.
    """
    a, _, index, mean, scale = saved
    num_examples, height, width, num_channels = z.shape
    num_rows, across = num_examples * (height // size), width // size
    for part in numba.prange(PARTS):
        put = np.zeros(num_channels, z.dtype)
        nothing = z.dtype.type(0)
        for row in range(part * num_rows // PARTS, (part + 1) * num_rows // PARTS):
            example, top, end = _place(row, z.shape, size)
            if example < num_norm:
                for h in range(top, end):
                    for w in range(width):
                        for c in range(num_channels):
                            xhat = (z[example, h, w, c] - mean[c]) * scale[c]
                            value = k0[c] + k1[c] * xhat
                            if zdot is not None:
                                value += k2[c] * zdot[example, h, w, c]
                            out[example, h, w, c] = value
            else:
                out[example, top:end] = 0
            for j in range(across):
                at = row * across + j
                for c in range(num_channels):
                    value = k4[c] * da[at, c]
                    if dadot is not None:
                        value += k3[c] * dadot[at, c]
                    put[c] = value if a[at, c] > 0 else value * slope
                if size == 1:
                    for c in range(num_channels):
                        out[example, top, j, c] += put[c]
                else:
                    for place in range(4):
                        h, w = top + place // 2, 2 * j + place % 2
                        for c in range(num_channels):
                            here = index[at, c] == place
                            out[example, h, w, c] += put[c] if here else nothing


@_inline
def _total(sums, which, c):
    total = 0.0
    for part in range(PARTS):
        total += sums[part, which, c]
    return total


@_inline
def forward(z, size, num_norm, gamma, beta, slope, eps, saved):
    """Writes `saved`."""
    a, zs, index, mean, scale = saved
    _, height, width, num_channels = z.shape
    num = num_norm * height * width
    sums = np.empty((PARTS, 2, num_channels))
    # If gamma is 0, all values of a window are equal, and the first is selected.
    sign = np.sign(gamma)
    # Sums of squares are taken around a value of the channel, or they would cancel.
    shift = z[0, 0, 0].copy()
    select(z, size, num_norm, sign, shift, sums, zs, index)
    for c in range(num_channels):
        first, second = _total(sums, 0, c) / num, _total(sums, 1, c) / num
        mean[c] = first + shift[c]
        scale[c] = 1 / np.sqrt(max(second - first * first, 0.0) + eps)
    _finish(zs, mean, scale, gamma, beta, slope, a)


@_inline
def backward(z, size, num_norm, gamma, da, saved, slope, dz, s1, s2):
    """Writes dz, S1, and S2."""
    a, zs, _, mean, scale = saved
    _, height, width, num_channels = z.shape
    num = num_norm * height * width
    sums = np.empty((PARTS, 2, num_channels))
    _sums_of_gradient(da, a, zs, mean, scale, slope, sums)
    k0, k1, k4 = np.empty_like(mean), np.empty_like(mean), np.empty_like(mean)
    for c in range(num_channels):
        s1[c], s2[c] = _total(sums, 0, c), _total(sums, 1, c)
        k4[c] = gamma[c] * scale[c]
        k0[c], k1[c] = -k4[c] * s1[c] / num, -k4[c] * s2[c] / num
    _input_gradient(z, None, size, num_norm, saved, k0, k1, k1, da, None, k4, k4, slope, dz)


@_inline
def tangent(z, size, num_norm, gamma, zdot, gammadot, betadot, da, saved, slope, moments, adot):
    """Writes adot and the moments m1, m2, and the sum of u P zdot."""
    a, zs, index, mean, scale = saved
    _, height, width, num_channels = z.shape
    num = num_norm * height * width
    sums = np.empty((PARTS, 2, num_channels))
    selected = zdot.reshape(zs.shape) if size == 1 else np.empty_like(zs)
    _sums_of_tangent(z, zdot, size, num_norm, mean, scale, index, sums, selected)
    k0, k1, k2 = np.empty_like(mean), np.empty_like(mean), np.empty_like(mean)
    for c in range(num_channels):
        m1, m2 = _total(sums, 0, c) / num, _total(sums, 1, c) / num
        moments[0, c], moments[1, c] = m1, m2
        k2[c] = gamma[c] * scale[c]
        k0[c], k1[c] = betadot[c] - k2[c] * m1, gammadot[c] - k2[c] * m2
    _finish_tangent(selected, zs, mean, scale, a, da, k0, k1, k2, slope, sums, adot)
    for c in range(num_channels):
        moments[2, c] = _total(sums, 0, c)


@_inline
def backward_tangent(
    z, size, num_norm, gamma, zdot, gammadot, da, dadot, saved, slope, moments, s1, s2, found
):
    """Writes `found`: dzdot, S1dot, and S2dot."""
    a, zs, _, mean, scale = saved
    dzdot, s1dot, s2dot = found
    _, height, width, num_channels = z.shape
    num = num_norm * height * width
    sums = np.zeros((PARTS, 2, num_channels))
    if dadot is not None:
        _sums_of_gradient(dadot, a, zs, mean, scale, slope, sums)
    k0, k1, k2 = np.empty_like(mean), np.empty_like(mean), np.empty_like(mean)
    k3, k4 = np.empty_like(mean), np.empty_like(mean)
    for c in range(num_channels):
        r, m1, m2 = scale[c], moments[0, c], moments[1, c]
        s1dot[c] = _total(sums, 0, c)
        s2dot[c] = _total(sums, 1, c) + r * (moments[2, c] - m1 * s1[c] - m2 * s2[c])
        factor = gamma[c] * r
        moved = gammadot[c] * r - factor * r * m2
        k0[c] = -(factor * s1dot[c] + moved * s1[c] - factor * r * m1 * s2[c]) / num
        k1[c] = -(factor * s2dot[c] + moved * s2[c] - factor * r * m2 * s2[c]) / num
        k2[c] = -factor * r * s2[c] / num
        k3[c], k4[c] = factor, moved
    _input_gradient(z, zdot, size, num_norm, saved, k0, k1, k2, da, dadot, k3, k4, slope, dzdot)
