"""Layers whose parameters the caller initializes."""

from typing import Any, TypeVar

import torch
from torch import nn

_Layer = TypeVar("_Layer", bound=nn.Module)


def uninitialized(layer: type[_Layer], *sizes: int, **options: Any) -> _Layer:
    """Create a layer with uninitialized parameters, without random numbers.

    `nn.utils.skip_init` does the same, but imports sympy, which takes half a second.
    """
    made = layer(*sizes, device="meta", **options)
    for name, parameter in made.named_parameters():
        setattr(made, name, nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype)))
    return made
