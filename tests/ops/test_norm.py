"""Batch norm, pooling, and activation equal plain torch, to the second derivative."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.ops import Plan, _compiled, network
from alfa.ops.stages import Norm


def plain(z: Tensor, gamma: Tensor, beta: Tensor, slope: float = 0.01) -> Tensor:
    normed = F.batch_norm(z, None, None, gamma, beta, training=True, eps=1e-5)
    return F.max_pool2d(F.leaky_relu(normed, slope), 2)


def norm_pool_act(z: Tensor, gamma: Tensor, beta: Tensor, size: int = 2) -> Tensor:
    """Apply the stage to the images of one task."""
    plan = Plan(Norm("norm", size=size))
    return network(plan, z.unsqueeze(0), [gamma.unsqueeze(0), beta.unsqueeze(0)]).squeeze(0)


def draw(shape: tuple[int, ...], seed: int = 0, *, negative: bool = True) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(shape, generator=generator, dtype=torch.float64)
    gamma = torch.randn(shape[1], generator=generator, dtype=torch.float64)
    beta = torch.randn(shape[1], generator=generator, dtype=torch.float64)
    gamma[0] = -abs(gamma[0]) if negative else abs(gamma[0])
    return [tensor.requires_grad_() for tensor in (z, gamma, beta)]


def derivatives(function, inputs: list[Tensor], seed: int = 9) -> list[Tensor]:
    """Return the output and its first and second derivatives."""
    generator = torch.Generator().manual_seed(seed)
    output = function(*inputs)
    weights = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    weights.requires_grad_()
    first = torch.autograd.grad(output, inputs, weights, create_graph=True)
    directions = [
        torch.randn(tensor.shape, generator=generator, dtype=output.dtype) for tensor in inputs
    ]
    second = torch.autograd.grad(
        first, [*inputs, weights], directions, allow_unused=True, materialize_grads=True
    )
    return [output, *first, *second]


SHAPES = [(3, 4, 6, 6), (2, 1, 5, 7), (1, 3, 2, 2), (4, 2, 3, 2), (2, 5, 9, 4)]


@pytest.fixture
def way(way, monkeypatch):
    """Check that the tests use the requested way."""
    used, real = [], _compiled.norm_kernels
    monkeypatch.setattr(_compiled, "norm_kernels", lambda: used.append(1) or real())
    yield way
    assert bool(used) == (way == "compiled")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_it_equals_plain_torch_to_the_second_derivative(way, shape, layout) -> None:
    inputs = draw(shape)
    ours = [inputs[0].detach().to(memory_format=layout).requires_grad_(), *inputs[1:]]
    expected, found = derivatives(plain, inputs), derivatives(norm_pool_act, ours)
    for left, right in zip(expected, found, strict=True):
        torch.testing.assert_close(right, left, rtol=1e-9, atol=1e-9)


def test_ties_in_the_pool_go_to_the_first(way) -> None:
    z = torch.tensor([[1.0, 1.0, 0.0, 2.0], [1.0, 0.0, 2.0, 2.0]], dtype=torch.float64)
    for sign in (1.0, -1.0, 0.0):
        inputs = [
            z.expand(2, 1, 2, 4).clone().requires_grad_(),
            torch.tensor([sign], dtype=torch.float64, requires_grad=True),
            torch.tensor([0.3], dtype=torch.float64, requires_grad=True),
        ]
        expected, found = derivatives(plain, inputs), derivatives(norm_pool_act, inputs)
        for left, right in zip(expected, found, strict=True):
            torch.testing.assert_close(right, left, rtol=1e-9, atol=1e-9)


def test_finite_differences_agree(way) -> None:
    inputs = tuple(draw((2, 2, 4, 4), seed=3))
    assert torch.autograd.gradcheck(norm_pool_act, inputs)
    assert torch.autograd.gradgradcheck(norm_pool_act, inputs)


def test_statistics_survive_a_large_mean_in_single_precision(way) -> None:
    z, gamma, beta = (tensor.detach().float() for tensor in draw((4, 3, 8, 8)))
    far = z + 100
    expected = plain(far.double(), gamma.double(), beta.double())
    torch.testing.assert_close(
        norm_pool_act(far, gamma, beta).double(), expected, rtol=1e-3, atol=1e-3
    )


def test_derivatives_in_single_precision_equal_plain_torch(way) -> None:
    inputs = [tensor.detach().float().requires_grad_() for tensor in draw((4, 3, 8, 8))]
    expected, found = derivatives(plain, inputs), derivatives(norm_pool_act, inputs)
    for left, right in zip(expected, found, strict=True):
        assert right.dtype == torch.float32
        torch.testing.assert_close(right, left, rtol=1e-4, atol=1e-4)


def test_the_number_of_threads_does_not_change_a_digit() -> None:
    inputs = draw((6, 5, 12, 12))
    threads = torch.get_num_threads()
    try:
        results = []
        for number in (1, 2):
            torch.set_num_threads(number)
            results.append(derivatives(norm_pool_act, inputs))
    finally:
        torch.set_num_threads(threads)
    for left, right in zip(results[0], results[-1], strict=True):
        assert torch.equal(left, right)


def test_an_image_without_a_window_is_refused() -> None:
    z = torch.zeros(4, 2, 1, 4)
    with pytest.raises(ConfigError, match="images of 1 x 4 are too small"):
        norm_pool_act(z, torch.ones(2), torch.zeros(2))


def test_a_single_value_per_channel_is_refused() -> None:
    sentence = "batch normalization needs more than one value per channel, got one example of 1 x 1"
    with pytest.raises(ConfigError, match=sentence):
        norm_pool_act(torch.zeros(1, 2, 1, 1), torch.ones(2), torch.zeros(2), size=1)
