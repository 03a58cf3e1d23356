"""Any module with other tensors in the place of its own."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.func import functional_call


def call(model: nn.Module, tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """The outputs of a module with tensors in the place of its parameters and buffers.

    Where a module holds one of its parts under two names, torch puts what it takes out back in the
    wrong order, and the module is left with what it was given for a moment; there, every place is
    named once.
    """
    if _has_two_names(model):
        tensors = {
            name: tensors[as_known] for name, as_known in _places(model) if as_known in tensors
        }
        outputs: Tensor = functional_call(model, tensors, (x,), tie_weights=False)
    else:
        outputs = functional_call(model, dict(tensors), (x,))
    return outputs


def _has_two_names(model: nn.Module) -> bool:
    return sum(1 for _ in model.named_modules(remove_duplicate=False)) > len(list(model.modules()))


def _places(model: nn.Module) -> list[tuple[str, str]]:
    """Every place of a tensor once, and the name that the tensor is known by: its first one."""
    known: dict[int, str] = {}
    places: dict[tuple[int, str], tuple[str, str]] = {}
    for tensors in (model.named_parameters, model.named_buffers):
        for name, tensor in tensors(remove_duplicate=False):
            path, _, last = name.rpartition(".")
            first = known.setdefault(id(tensor), name)
            places.setdefault((id(model.get_submodule(path)), last), (name, first))
    return list(places.values())
