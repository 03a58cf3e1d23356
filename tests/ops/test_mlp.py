import itertools

import pytest
import torch
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import LearnedInit
from alfa.learner import adapt
from alfa.models import MLP
from alfa.ops import _compiled as compiled
from alfa.ops import mlp, mlp_mse_gradients, mse
from alfa.rules import SGD

SHAPES = [
    # sizes, tasks, examples
    ((1, 1), 1, 1),
    ((3, 2), 2, 4),
    ((1, 4, 1), 1, 1),
    ((2, 5, 3), 3, 6),
    ((1, 4, 3, 1), 2, 5),
    ((3, 2, 6, 2), 3, 1),
    ((2, 3, 5, 4, 3), 2, 7),
    ((1, 6, 2, 3, 1), 1, 10),
]


def num_values(sizes):
    return sum((fan_in + 1) * fan_out for fan_in, fan_out in itertools.pairwise(sizes))


def inputs(randn, sizes, num_tasks, num_examples):
    x = randn(num_tasks, num_examples, sizes[0])
    targets = randn(num_tasks, num_examples, sizes[-1])
    theta = randn(num_tasks, num_values(sizes)).requires_grad_()
    return x, targets, theta


def twin_of_one_task(x, theta, sizes):
    """Plain linear layers with ReLU between them."""
    first = 0
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        weight = theta[first : first + fan_in * fan_out].view(fan_out, fan_in)
        first += fan_in * fan_out
        bias = theta[first : first + fan_out]
        first += fan_out
        x = F.linear(x if layer == 0 else F.relu(x), weight, bias)
    return x


def twin(x, theta, sizes):
    return torch.stack([twin_of_one_task(x[t], theta[t], sizes) for t in range(len(x))])


def twin_gradients(x, targets, theta, sizes):
    outputs = twin(x, theta, sizes)
    losses = torch.stack([F.mse_loss(o, t) for o, t in zip(outputs, targets, strict=True)])
    (gradient,) = torch.autograd.grad(losses.sum(), theta, create_graph=True)
    return losses, gradient


def close(actual, expected, tolerance=1e-10):
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("sizes", "num_tasks", "num_examples"), SHAPES)
def test_mlp_is_linear_layers_with_relu_between(randn, sizes, num_tasks, num_examples):
    x, _, theta = inputs(randn, sizes, num_tasks, num_examples)
    close(mlp(x, theta, sizes), twin(x, theta, sizes))


@pytest.mark.parametrize(("sizes", "num_tasks", "num_examples"), SHAPES)
def test_losses_and_gradients_are_those_of_autograd(randn, sizes, num_tasks, num_examples):
    x, targets, theta = inputs(randn, sizes, num_tasks, num_examples)
    losses, gradient = mlp_mse_gradients(x, targets, theta, sizes)
    expected_losses, expected = twin_gradients(x, targets, theta, sizes)
    close(losses, expected_losses.detach())
    close(gradient, expected)


@pytest.mark.parametrize(("sizes", "num_tasks", "num_examples"), SHAPES)
def test_hessian_product_is_that_of_autograd(randn, sizes, num_tasks, num_examples):
    x, targets, theta = inputs(randn, sizes, num_tasks, num_examples)
    direction = randn(*theta.shape)
    _, gradient = mlp_mse_gradients(x, targets, theta, sizes)
    _, expected = twin_gradients(x, targets, theta, sizes)
    (product,) = torch.autograd.grad((gradient * direction).sum(), theta)
    (expected_product,) = torch.autograd.grad((expected * direction).sum(), theta)
    assert expected_product.abs().max() > 0
    close(product, expected_product)


@pytest.mark.parametrize("sizes", [(2, 2), (2, 3, 2), (1, 3, 2, 1)])
def test_derivative_of_the_gradient_passes_gradcheck(randn, sizes):
    x, targets, theta = inputs(randn, sizes, 2, 3)
    assert torch.autograd.gradcheck(lambda t: mlp_mse_gradients(x, targets, t, sizes)[1], (theta,))


def test_one_row_expanded_to_all_tasks_is_taken(randn):
    sizes = (2, 4, 3)
    x, targets, theta = inputs(randn, sizes, 3, 5)
    row = theta[:1].detach().requires_grad_()
    _, gradient = mlp_mse_gradients(x, targets, row.expand(3, -1), sizes)
    direction = randn(*gradient.shape)
    (product,) = torch.autograd.grad((gradient * direction).sum(), row)
    _, expected = twin_gradients(x, targets, row.expand(3, -1), sizes)
    (expected_product,) = torch.autograd.grad((expected * direction).sum(), row)
    close(gradient, expected)
    close(product, expected_product)


def test_data_that_is_not_contiguous_is_taken(randn):
    sizes = (2, 4, 3)
    x, targets, theta = inputs(randn, sizes, 3, 5)
    strided_x = x.transpose(0, 1).contiguous().transpose(0, 1)
    strided_targets = targets.transpose(1, 2).contiguous().transpose(1, 2)
    assert not strided_x.is_contiguous()
    assert not strided_targets.is_contiguous()
    losses, gradient = mlp_mse_gradients(strided_x, strided_targets, theta, sizes)
    expected_losses, expected = twin_gradients(x, targets, theta, sizes)
    close(losses, expected_losses.detach())
    close(gradient, expected)
    direction = randn(*gradient.shape)
    (product,) = torch.autograd.grad((gradient * direction).sum(), theta)
    (expected_product,) = torch.autograd.grad((expected * direction).sum(), theta)
    close(product, expected_product)


def test_losses_are_constants(randn):
    x, targets, theta = inputs(randn, (1, 3, 1), 2, 4)
    losses, gradient = mlp_mse_gradients(x, targets, theta, (1, 3, 1))
    assert not losses.requires_grad
    assert gradient.requires_grad


def test_not_a_number_is_not_hidden_by_relu(randn):
    sizes = (1, 3, 3, 1)
    x, targets, theta = inputs(randn, sizes, 2, 4)
    broken = theta.detach().clone()
    broken[0, 0] = torch.nan
    losses, gradient = mlp_mse_gradients(x, targets, broken, sizes)
    assert losses.isnan().tolist() == [True, False]
    assert gradient[0].isnan().any()
    assert not gradient[1].isnan().any()


def test_compiled_kernels_do_the_work(randn, kernels_used):
    x, targets, theta = inputs(randn, (1, 3, 1), 2, 4)
    assert compiled.use_kernels(theta, x, targets, work=theta.numel() * 4)
    _, gradient = mlp_mse_gradients(x, targets, theta, (1, 3, 1))
    gradient.sum().backward()
    assert kernels_used == ["mlp_mse_gradients", "mlp_mse_hessian_product"]


def test_autograd_serves_without_numba(randn, without_numba):
    x, targets, theta = inputs(randn, (1, 3, 1), 2, 4)
    assert mlp_mse_gradients(x, targets, theta, (1, 3, 1)) is None


def test_autograd_serves_for_much_work(randn, monkeypatch):
    x, targets, theta = inputs(randn, (1, 3, 1), 2, 4)
    work = theta.numel() * x.shape[1]
    monkeypatch.setattr(compiled, "_MOST_WORK", work - 1)
    assert mlp_mse_gradients(x, targets, theta, (1, 3, 1)) is None
    monkeypatch.setattr(compiled, "_MOST_WORK", work)
    assert mlp_mse_gradients(x, targets, theta, (1, 3, 1)) is not None


@pytest.mark.parametrize("odd_one", ["x", "targets", "theta"])
def test_autograd_serves_for_mixed_dtypes(randn, odd_one):
    x, targets, theta = inputs(randn, (1, 3, 1), 2, 4)
    tensors = {"x": x, "targets": targets, "theta": theta}
    tensors[odd_one] = tensors[odd_one].float()
    assert mlp_mse_gradients(**tensors, sizes=(1, 3, 1)) is None


@pytest.mark.parametrize("rule", ["sgd", "learned", "alfa"])
@pytest.mark.parametrize("init", ["learned", "fixed", "attenuated"])
def test_a_learner_gives_the_same_with_and_without_numba(
    make_learner, make_mlp, make_episode, meta_gradients, kernels_used, monkeypatch, rule, init
):
    learner = make_learner(make_mlp(), init=init, rule=rule)
    episode = make_episode()
    loss, grads = meta_gradients_or_loss(learner, episode, meta_gradients)
    assert "mlp_mse_gradients" in kernels_used
    kernels_used.clear()
    monkeypatch.setattr(compiled, "numba_available", lambda: False)
    plain_loss, plain_grads = meta_gradients_or_loss(learner, episode, meta_gradients)
    assert not kernels_used
    close(loss, plain_loss)
    for grad, plain in zip(grads, plain_grads, strict=True):
        close(grad, plain)


def meta_gradients_or_loss(learner, episode, meta_gradients):
    if any(True for _ in learner.meta_parameters()):
        return meta_gradients(learner, episode)
    return learner(episode).query_losses.mean(), []


@pytest.mark.parametrize(
    ("x_shape", "y_shape"),
    [((2, 4, 1), (2, 4, 3)), ((2, 4, 1), (2, 4)), ((2, 4, 2), (2, 4, 1))],
    ids=["too many targets", "targets without a last dimension", "too many inputs"],
)
def test_data_that_does_not_fit_the_model_never_reaches_a_kernel(
    rng, randn, monkeypatch, backend, x_shape, y_shape
):
    def kernels():
        raise AssertionError("a kernel, which checks no bounds, got data of the wrong shape")

    monkeypatch.setattr(compiled, "mlp_kernels", kernels)
    model = MLP((1,), 1, hidden=[3], generator=rng).double()
    init = LearnedInit(model)
    x, y = randn(*x_shape), randn(*y_shape)
    # Either the loss raises the error, or torch for a product of the wrong shapes.
    with pytest.raises((ConfigError, RuntimeError), match=r"shape|size"):
        adapt(model, x, y, init=init, rule=SGD(init.layers), loss=mse)
