"""Running a module with other tensors in place of its own, or with hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


def call(model: nn.Module, tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """The outputs of a module with tensors in place of its parameters and buffers.

    If a module holds one of its parts under two names, torch restores the original tensors in the
    wrong order and leaves replacements in the module; `call` then names each tensor only once.
    """
    if _has_two_names(model):
        tensors = {name: tensors[first] for name, first in _places(model) if first in tensors}
        outputs: Tensor = functional_call(model, tensors, (x,), tie_weights=False)
    else:
        outputs = functional_call(model, dict(tensors), (x,))
    return outputs


@contextlib.contextmanager
def observe_inputs(
    modules: Iterable[nn.Module], observe: Callable[[nn.Module, Tensor], None]
) -> Iterator[None]:
    """Call a function with each of the modules and its input whenever it runs."""

    def hook(module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Any]) -> None:
        observe(module, inputs[0] if inputs else named["input"])

    with contextlib.ExitStack() as handles:
        for module in modules:
            handles.enter_context(module.register_forward_pre_hook(hook, with_kwargs=True))
        yield


def _has_two_names(model: nn.Module) -> bool:
    return sum(1 for _ in model.named_modules(remove_duplicate=False)) > len(list(model.modules()))


def _places(model: nn.Module) -> list[tuple[str, str]]:
    """One name of each place of a tensor, and the first name of the tensor."""
    known: dict[int, str] = {}
    places: dict[tuple[int, str], tuple[str, str]] = {}
    for tensors in (model.named_parameters, model.named_buffers):
        for name, tensor in tensors(remove_duplicate=False):
            path, _, last = name.rpartition(".")
            first = known.setdefault(id(tensor), name)
            places.setdefault((id(model.get_submodule(path)), last), (name, first))
    return list(places.values())
