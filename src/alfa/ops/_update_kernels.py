"""The inner update and the learning state of large networks, compiled; see `alfa.ops._update`.

Parameters are rows, ``[task, size]``, with the layers between `bounds`; what belongs to a layer is
``[task, layer]``. All arrays have one dtype, sums are made in double precision.
"""

from __future__ import annotations

import numba

# Sums may be reordered for speed; not-a-number must stay what it is.
_jit = numba.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"}
)


@_jit
def means(rows, bounds, out):
    """The mean of every layer."""
    for task in range(rows.shape[0]):
        for layer in range(len(bounds) - 1):
            total = 0.0
            for i in range(bounds[layer], bounds[layer + 1]):
                total += rows[task, i]
            out[task, layer] = total / (bounds[layer + 1] - bounds[layer])


@_jit
def means_transposed(d, bounds, out):
    """Every value has the same part in the mean of its layer."""
    for task in range(out.shape[0]):
        for layer in range(len(bounds) - 1):
            out[task, bounds[layer] : bounds[layer + 1]] = d[task, layer] / (
                bounds[layer + 1] - bounds[layer]
            )


@_jit
def update(theta, grads, alpha, beta, bounds, out):
    """Eq. 4"""
    for task in range(theta.shape[0]):
        for layer in range(len(bounds) - 1):
            a, b = alpha[task, layer], beta[task, layer]
            for i in range(bounds[layer], bounds[layer + 1]):
                out[task, i] = b * theta[task, i] - a * grads[task, i]


@_jit
def update_backward(d, theta, grads, alpha, beta, bounds, dtheta, dgrads, dalpha, dbeta):
    """dtheta = beta d, dgrads = -alpha d, and by layers dalpha = -sum d g, dbeta = sum d theta."""
    for task in range(theta.shape[0]):
        for layer in range(len(bounds) - 1):
            a, b = alpha[task, layer], beta[task, layer]
            in_alpha, in_beta = 0.0, 0.0
            for i in range(bounds[layer], bounds[layer + 1]):
                dtheta[task, i] = b * d[task, i]
                dgrads[task, i] = -a * d[task, i]
                in_alpha -= d[task, i] * grads[task, i]
                in_beta += d[task, i] * theta[task, i]
            dalpha[task, layer], dbeta[task, layer] = in_alpha, in_beta
