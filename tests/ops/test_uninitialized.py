"""Layers that draw no random numbers when they are created."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alfa.ops import uninitialized

LAYERS = [
    (nn.Linear, (3, 2), {}),
    (nn.Linear, (3, 2), {"bias": False}),
    (nn.Linear, (3, 2), {"dtype": torch.float64}),
    (nn.Conv2d, (3, 4, 5), {"stride": 2, "padding": 1}),
]


@pytest.mark.parametrize(("layer", "sizes", "options"), LAYERS)
def test_it_is_the_layer_but_for_its_values(layer, sizes, options) -> None:
    made, expected = uninitialized(layer, *sizes, **options), layer(*sizes, **options)
    assert repr(made) == repr(expected)
    own = dict(made.named_parameters())
    assert list(own) == [name for name, _ in expected.named_parameters()]
    for name, parameter in expected.named_parameters():
        assert isinstance(own[name], nn.Parameter)
        assert own[name].requires_grad
        assert (own[name].shape, own[name].dtype) == (parameter.shape, parameter.dtype)
        assert own[name].device == parameter.device
    made.load_state_dict(expected.state_dict())
    image = torch.ones(1, 3, 8, 8) if layer is nn.Conv2d else torch.ones(1, 3)
    image = image.to(made.weight.dtype)
    assert torch.equal(made(image), expected(image))


@pytest.mark.parametrize(("layer", "sizes", "options"), LAYERS)
def test_no_numbers_are_drawn(layer, sizes, options) -> None:
    before = torch.get_rng_state()
    uninitialized(layer, *sizes, **options)
    assert torch.equal(torch.get_rng_state(), before)
