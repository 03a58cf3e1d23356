"""Networks without batch norm compute the same function as the published ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from alfa.backbones import _efficientnet_lite as lite
from alfa.backbones import _mobilenet_v2 as mobilenet
from alfa.backbones._inverted_residuals import (
    InvertedResiduals,
    Padding,
    symmetric_padding,
    tensorflow_padding,
)

SHALLOW = lite.lite_stages(lite._SHALLOW, lite._NARROW)


def folded(network: torch.nn.Module, name: str, size: int) -> InvertedResiduals:
    """Return a network without batch norm in float64, with the weights of a plain one."""
    stages, names, padding, eps = SHALLOW, lite.lite_names(SHALLOW), tensorflow_padding, 1e-3
    if name == "mobilenet-v2":
        stages, names = mobilenet.STAGES, mobilenet.mobilenet_names()
        padding, eps = symmetric_padding, 1e-5
    made = InvertedResiduals(stages, size=size, padding=padding).double()
    return made.load(network.state_dict(), names, eps=eps)


@pytest.mark.parametrize("name", ["efficientnet-lite0", "mobilenet-v2"])
# The padding of the strided convolutions differs between these sizes.
@pytest.mark.parametrize("size", [32, 33, 36, 46])
def test_batch_norm_is_folded_into_convolutions(plain, name: str, size: int) -> None:
    network = plain(name).double()
    x = torch.randn(2, 3, size, size, dtype=torch.float64)
    expected = network.features_of(x)
    assert expected.std() > 0.1
    assert torch.allclose(folded(network, name, size)(x), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("side", [7, 8, 15, 16])
def test_the_padding_is_that_of_tensorflow(side: int, kernel: int, stride: int) -> None:
    before, after = tensorflow_padding(side, kernel, stride)
    # TensorFlow's documentation of `SAME` for strided convolutions.
    rest = side % stride
    total = max(kernel - (rest or stride), 0)
    assert (before, after) == (total // 2, total - total // 2)
    assert (side + before + after - kernel) // stride + 1 == -(-side // stride)


@pytest.mark.parametrize("padding", [tensorflow_padding, symmetric_padding])
def test_layers_are_plain_convolutions_with_symmetric_padding(padding: Padding) -> None:
    network = InvertedResiduals(SHALLOW, size=32, padding=padding)
    assert all(conv.padding_mode == "zeros" for conv in network.convolutions())
    num_strided = sum(conv.stride == (2, 2) for conv in network.convolutions())
    assert num_strided == 5
    num_enlarged = sum(conv.kernel_size[0] % 2 == 0 for conv in network.convolutions())
    assert num_enlarged == (5 if padding is tensorflow_padding else 0)


def test_the_last_block_can_be_trained(plain: Callable[[str], Any]) -> None:
    network = folded(plain("efficientnet-lite0"), "efficientnet-lite0", 32)
    assert not any(p.requires_grad for p in network.parameters())
    network.blocks[-1].requires_grad_(True)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    network(x).square().mean().backward()
    grads = [p.grad for p in network.blocks[-1].parameters()]
    assert grads
    assert all(grad is not None and grad.abs().sum() > 0 for grad in grads)
