"""Compiled kernels for networks so small that calls of operations cost more than the arithmetic.

They take contiguous numpy views of torch tensors of one dtype and write into arrays that the
caller allocated. The parameters of a perceptron with layers of `sizes` are rows, ``[task, size]``:
each weight ``[out, in]``, then its bias. `alfa.ops._mlp` has the equations.
"""

import numba
import numpy as np

from alfa.ops._compiled import JIT_OPTIONS

_jit = numba.njit(**JIT_OPTIONS)


@_jit
def _affine(a, w, b, out):
    """out = a w' + b"""
    for e in range(a.shape[0]):
        for o in range(w.shape[0]):
            total = b[o]
            for i in range(w.shape[1]):
                total += a[e, i] * w[o, i]
            out[e, o] = total


@_jit
def _add_times_transposed(c, w, out):
    """out += c w'"""
    for e in range(c.shape[0]):
        for o in range(w.shape[0]):
            total = out[e, o]
            for i in range(w.shape[1]):
                total += c[e, i] * w[o, i]
            out[e, o] = total


@_jit
def _add_times(d, w, out):
    """out += d w"""
    for e in range(d.shape[0]):
        for o in range(w.shape[0]):
            factor = d[e, o]
            for i in range(w.shape[1]):
                out[e, i] += factor * w[o, i]


@_jit
def _add_transposed_times(d, a, out):
    """out += d' a"""
    for o in range(d.shape[1]):
        for e in range(d.shape[0]):
            factor = d[e, o]
            for i in range(a.shape[1]):
                out[o, i] += factor * a[e, i]


@_jit
def _add_rows(d, out):
    """out += the sum of the rows of d"""
    for e in range(d.shape[0]):
        for o in range(d.shape[1]):
            out[o] += d[e, o]


@_jit
def _mask(a, out):
    """out = 0 at places with a <= 0"""
    for e in range(a.shape[0]):
        for i in range(a.shape[1]):
            if not a[e, i] > 0:
                out[e, i] = 0


@_jit
def _block(row, first, num_rows, num_columns):
    """View a part of a row as a matrix."""
    return row[first : first + num_rows * num_columns].reshape(num_rows, num_columns)


@_jit
def _layer(row, sizes, layer, first):
    """View the weight and the bias of a layer, which begins at `first`."""
    end = first + _num_values(sizes, layer)
    weight = _block(row, first, sizes[layer + 1], sizes[layer])
    return weight, row[end - sizes[layer + 1] : end]


@_jit
def _num_values(sizes, layer):
    return sizes[layer + 1] * (sizes[layer] + 1)


@_jit
def _forward_task(x, theta, sizes, saved, y):
    """Write y, and a_1 ... a_{L-1} to `saved`, each with room for its d_l behind it."""
    a, first, first_saved = x, 0, 0
    last = len(sizes) - 2
    for layer in range(last + 1):
        size = sizes[layer + 1]
        weight, bias = _layer(theta, sizes, layer, first)
        z = y if layer == last else _block(saved, first_saved, x.shape[0], size)
        _affine(a, weight, bias, z)
        if layer < last:
            for e in range(z.shape[0]):
                for i in range(size):
                    # This comparison keeps NaN.
                    if z[e, i] < 0:
                        z[e, i] = 0
        a = z
        first += _num_values(sizes, layer)
        first_saved += 2 * x.shape[0] * size


@_jit
def _backward_task(x, theta, sizes, saved, dy, gradient):
    """Write the gradient, and d_1 ... d_{L-1} to `saved`."""
    num_examples = x.shape[0]
    first, first_saved = len(theta), len(saved)
    d = dy
    gradient[:] = 0
    for layer in range(len(sizes) - 2, -1, -1):
        first -= _num_values(sizes, layer)
        dw, db = _layer(gradient, sizes, layer, first)
        _add_rows(d, db)
        if layer == 0:
            _add_transposed_times(d, x, dw)
            break
        block = num_examples * sizes[layer]
        first_saved -= 2 * block
        a = _block(saved, first_saved, num_examples, sizes[layer])
        below = _block(saved, first_saved + block, num_examples, sizes[layer])
        _add_transposed_times(d, a, dw)
        below[:] = 0
        _add_times(d, _layer(theta, sizes, layer, first)[0], below)
        _mask(a, below)
        d = below


@_jit
def mlp_mse_gradients(x, targets, theta, sizes, saved, dy, losses, gradient):
    num_values = targets.shape[1] * targets.shape[2]
    for task in range(x.shape[0]):
        _forward_task(x[task], theta[task], sizes, saved[task], dy[task])
        losses[task] = 0
        for e in range(targets.shape[1]):
            for o in range(targets.shape[2]):
                error = dy[task, e, o] - targets[task, e, o]
                losses[task] += error * error / num_values
                dy[task, e, o] = error * 2 / num_values
        _backward_task(x[task], theta[task], sizes, saved[task], dy[task], gradient[task])


@_jit
def _e_sweep(x, theta, sizes, saved, u, cs, e):
    """Write c_1 ... c_{L-1} to `cs`, and e_L to `e`."""
    a, first, first_saved, first_c = x, 0, 0, 0
    num_examples = x.shape[0]
    last = len(sizes) - 2
    for layer in range(last + 1):
        block = num_examples * sizes[layer + 1]
        weight, bias = _layer(u, sizes, layer, first)
        target = e if layer == last else _block(cs, first_c, num_examples, sizes[layer + 1])
        _affine(a, weight, bias, target)
        if layer > 0:
            c = _block(cs, first_c - a.size, num_examples, sizes[layer])
            _add_times_transposed(c, _layer(theta, sizes, layer, first)[0], target)
        if layer < last:
            a = _block(saved, first_saved, num_examples, sizes[layer + 1])
            _mask(a, target)
        first += _num_values(sizes, layer)
        first_saved += 2 * block
        first_c += block


@_jit
def _f_sweep(x, theta, sizes, saved, dy, u, cs, f, product):
    """Write the product, from f_L and the results of the other sweep."""
    num_examples = x.shape[0]
    first, first_saved, first_c = len(theta), len(saved), len(cs)
    d = dy
    product[:] = 0
    for layer in range(len(sizes) - 2, -1, -1):
        first -= _num_values(sizes, layer)
        dw, db = _layer(product, sizes, layer, first)
        _add_rows(f, db)
        if layer == 0:
            _add_transposed_times(f, x, dw)
            break
        block = num_examples * sizes[layer]
        first_saved -= 2 * block
        first_c -= block
        a = _block(saved, first_saved, num_examples, sizes[layer])
        _add_transposed_times(f, a, dw)
        _add_transposed_times(d, _block(cs, first_c, num_examples, sizes[layer]), dw)
        below = np.zeros((num_examples, sizes[layer]), dtype=x.dtype)
        _add_times(f, _layer(theta, sizes, layer, first)[0], below)
        _add_times(d, _layer(u, sizes, layer, first)[0], below)
        _mask(a, below)
        d = _block(saved, first_saved + block, num_examples, sizes[layer])
        f = below


@_jit
def mlp_mse_hessian_product(x, theta, sizes, saved, dy, u, product):
    """Run the sweeps over e and f of `alfa.ops._mlp`, with f_L = 2 e_L / n."""
    cs = np.empty(saved.shape[1] // 2, dtype=x.dtype)
    e = np.empty((x.shape[1], sizes[-1]), dtype=x.dtype)
    for task in range(x.shape[0]):
        _e_sweep(x[task], theta[task], sizes, saved[task], u[task], cs, e)
        for row in range(e.shape[0]):
            for o in range(e.shape[1]):
                e[row, o] *= 2 / e.size
        _f_sweep(x[task], theta[task], sizes, saved[task], dy[task], u[task], cs, e, product[task])
