"""Functions that run a module with replaced tensors or with hooks."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


def call(model: nn.Module, tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the outputs of a module with tensors in place of its parameters and buffers.

    If a module registers a submodule under two names, torch restores the original tensors in the
    wrong order and leaves replacements in the module; `call` then passes each tensor only once.
    """
    if len(list(model.named_modules(remove_duplicate=False))) == len(list(model.modules())):
        outputs: Tensor = functional_call(model, dict(tensors), (x,))
    else:
        tensors = {name: tensors[first] for name, first in _locations(model) if first in tensors}
        outputs = functional_call(model, tensors, (x,), tie_weights=False)
    return outputs


@contextlib.contextmanager
def observe_inputs(
    modules: Iterable[nn.Module], observe: Callable[[nn.Module, Tensor], None]
) -> Iterator[None]:
    """Within this context, call `observe` with a module and its input whenever it runs."""

    def hook(module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Any]) -> None:
        observe(module, inputs[0] if inputs else named["input"])

    with contextlib.ExitStack() as handles:
        for module in modules:
            handles.enter_context(module.register_forward_pre_hook(hook, with_kwargs=True))
        yield


def _locations(model: nn.Module) -> list[tuple[str, str]]:
    """Return one name of each attribute that holds a tensor, and the tensor's first name."""
    first_names: dict[int, str] = {}
    locations: dict[tuple[int, str], tuple[str, str]] = {}
    for tensors in (model.named_parameters, model.named_buffers):
        for name, tensor in tensors(remove_duplicate=False):
            path, _, attribute = name.rpartition(".")
            first = first_names.setdefault(id(tensor), name)
            locations.setdefault((id(model.get_submodule(path)), attribute), (name, first))
    return list(locations.values())
