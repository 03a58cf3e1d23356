"""Layers whose start is left to whoever makes them."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

_Layer = TypeVar("_Layer", bound=nn.Module)


def undrawn(layer: type[_Layer], *sizes: int, **options: Any) -> _Layer:
    """A layer the parameters of which hold anything, so that nobody's random numbers are drawn.

    `nn.utils.skip_init` gives the same, but imports sympy, which takes half a second.
    """
    made = layer(*sizes, device="meta", **options)
    for name, parameter in made.named_parameters():
        setattr(made, name, nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype)))
    return made
