"""Backbone weights: all parameters of a model except for its last layer, in a safetensors file."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from alfa._io import write_atomic
from alfa.errors import CheckpointError, did_you_mean
from alfa.models import body_parameters, last_layer

# Buffers of other programs' batch norm; alfa always uses the statistics of the current batch.
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
# The number of names that an error lists.
_MOST_LISTED = 5


def save_backbone(model: nn.Module, path: Path) -> None:
    """Save all parameters of a model except for its last layer."""
    parameters = body_parameters(model).items()
    write_atomic(path, save({name: p.detach().contiguous() for name, p in parameters}))


def load_backbone(model: nn.Module, path: Path) -> None:
    """Load all parameters of a model except for its last layer from a safetensors file.

    A last layer and batch-norm statistics in the file are ignored.

    Raises:
        CheckpointError: the file is missing, or holds the weights of another model.
        ConfigError: the model has no last layer, so it has no backbone.
    """
    wanted = body_parameters(model)
    if not path.is_file():
        raise CheckpointError(f"the weights file {path} does not exist.")
    try:
        with safe_open(path, framework="pt") as file:
            found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"the weights file {path} is damaged or not a safetensors file ({error})."
        ) from None
    # Any other last layer in the file belongs to the model before `Headed` replaced it.
    heads = {last_layer(model), getattr(model, "former_head", None) or last_layer(model)}
    if problems := _problems(wanted, found, tuple(f"{head}." for head in heads)):
        raise CheckpointError(
            f"the weights file {path} does not fit {type(model).__name__}: {'; '.join(problems)}."
        )
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(found[name])


def _problems(
    wanted: dict[str, nn.Parameter], found: dict[str, Tensor], heads: tuple[str, ...]
) -> list[str]:
    missing = [name for name in wanted if name not in found]
    unknown = [
        name
        for name in found.keys() - wanted.keys()
        if not name.startswith(heads) and name.rpartition(".")[2] not in _STATISTICS
    ]
    wrong = []
    for name, parameter in wanted.items():
        tensor = found.get(name, parameter)
        if tensor.shape != parameter.shape:
            wrong.append(f"{name} is {list(tensor.shape)}, but must be {list(parameter.shape)}")
        elif not tensor.is_floating_point():
            wrong.append(f"{name} is {tensor.dtype}, but must have a floating-point type")
    problems = []
    if missing:
        hint = did_you_mean(missing[0], unknown).strip()
        problems.append(f"it lacks {_shortened(missing)}{f' ({hint})' if hint else ''}")
    if unknown:
        problems.append(f"it has {_shortened(sorted(unknown))}, which the model lacks")
    return problems + ([_shortened(wrong)] if wrong else [])


def _shortened(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"{', '.join(names[:_MOST_LISTED])}{more}"
