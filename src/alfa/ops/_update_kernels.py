"""The inner update and the learning state of large networks, compiled; see `alfa.ops._update`.

Parameters are rows, ``[task, size]``, with the layers between `bounds`; values for each layer are
``[task, layer]``. All arrays have one dtype; sums use double precision.
"""

import numba

from alfa.ops._compiled import JIT_OPTIONS

_jit = numba.njit(**JIT_OPTIONS)

# Loops run over slices: numba compiles faster code if an index cannot be negative.


@_jit
def means(rows, bounds, out):
    """Compute the mean of every layer."""
    for task in range(rows.shape[0]):
        for layer in range(len(bounds) - 1):
            part = rows[task, bounds[layer] : bounds[layer + 1]]
            total = 0.0
            for i in range(len(part)):
                total += part[i]
            out[task, layer] = total / max(len(part), 1)


@_jit
def means_transposed(d, bounds, out):
    """Compute the transpose of `means`, which weights all values of a layer equally."""
    for task in range(out.shape[0]):
        for layer in range(len(bounds) - 1):
            part = out[task, bounds[layer] : bounds[layer + 1]]
            part[:] = d[task, layer] / max(len(part), 1)


@_jit
def update(theta, grads, alpha, beta, bounds, out):
    """Compute theta' = beta * theta - alpha * grad (Eq. 4)."""
    for task in range(theta.shape[0]):
        for layer in range(len(bounds) - 1):
            a, b = alpha[task, layer], beta[task, layer]
            first, last = bounds[layer], bounds[layer + 1]
            thetas, gs = theta[task, first:last], grads[task, first:last]
            new = out[task, first:last]
            for i in range(len(new)):
                new[i] = b * thetas[i] - a * gs[i]


@_jit
def update_backward(d, theta, grads, alpha, beta, bounds, dtheta, dgrads, dalpha, dbeta):
    """Compute dtheta = beta d, dgrads = -alpha d, dalpha = -sum d grad, dbeta = sum d theta."""
    for task in range(theta.shape[0]):
        for layer in range(len(bounds) - 1):
            a, b = alpha[task, layer], beta[task, layer]
            first, last = bounds[layer], bounds[layer + 1]
            ds, thetas, gs = d[task, first:last], theta[task, first:last], grads[task, first:last]
            in_theta, in_g = dtheta[task, first:last], dgrads[task, first:last]
            for i in range(len(ds)):
                in_theta[i] = b * ds[i]
                in_g[i] = -a * ds[i]
            in_alpha, in_beta = 0.0, 0.0
            for i in range(len(ds)):
                in_alpha -= ds[i] * gs[i]
                in_beta += ds[i] * thetas[i]
            dalpha[task, layer], dbeta[task, layer] = in_alpha, in_beta
