"""The weights of a backbone: all of a model but its last layer, in a file of safetensors."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from alfa._io import write_atomic
from alfa.errors import CheckpointError, did_you_mean
from alfa.models import Model

# What other programs keep of batch norm, which here always uses the batch at hand.
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
_SHOWN = 5


def save_backbone(model: Model, path: Path) -> None:
    """Write all parameters of a model but its last layer's."""
    write_atomic(path, save({n: p.detach().contiguous() for n, p in _backbone(model).items()}))


def load_backbone(model: Model, path: Path) -> None:
    """Read parameters into a model, by their names; its last layer stays as it is.

    Args:
        model: whose parameters are changed.
        path: a file of safetensors that has every one of them; a last layer or statistics of
            batch norm in it are passed over.

    Raises:
        CheckpointError: there is no such file, or it is of another model; names what differs.
    """
    if not path.is_file():
        raise CheckpointError(f"there is no file of weights {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"the weights {path} are damaged, or no safetensors ({error})."
        ) from None
    wanted = _backbone(model)
    faults = _faults(wanted, found, f"{model.head_name}.")
    if faults:
        raise CheckpointError(
            f"the weights {path} do not fit {type(model).__name__}: {'; '.join(faults)}."
        )
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(found[name])


def _backbone(model: Model) -> dict[str, nn.Parameter]:
    head = f"{model.head_name}."
    return {name: p for name, p in model.named_parameters() if not name.startswith(head)}


def _faults(wanted: dict[str, nn.Parameter], found: dict[str, Tensor], head: str) -> list[str]:
    absent = [name for name in wanted if name not in found]
    others = [
        name
        for name in found
        if name not in wanted
        and not name.startswith(head)
        and name.rpartition(".")[2] not in _STATISTICS
    ]
    common = {name: parameter for name, parameter in wanted.items() if name in found}
    shapes = [
        f"{name} is {list(found[name].shape)}, but must be {list(parameter.shape)}"
        for name, parameter in common.items()
        if found[name].shape != parameter.shape
    ]
    types = [
        f"{name} is {found[name].dtype}, but must be of a floating-point type"
        for name in common
        if not found[name].is_floating_point()
    ]
    faults = []
    if absent:
        hint = did_you_mean(absent[0], others).strip()
        faults.append(f"they lack {_shortened(absent)}{f' ({hint})' if hint else ''}")
    if others:
        faults.append(f"they have {_shortened(others)}, which it has no use for")
    return faults + [_shortened(some) for some in (shapes, types) if some]


def _shortened(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
