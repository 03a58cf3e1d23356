"""Backbone weights: all parameters of a model except for its last layer, in a safetensors file."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from alfa._io import write_atomic
from alfa.errors import CheckpointError, ConfigError, did_you_mean
from alfa.models import Model

# Buffers of other programs' batch norm; alfa always uses the statistics of the current batch.
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
# The number of names that an error lists.
_MOST_LISTED = 5


def with_backbone(model: nn.Module) -> Model:
    """Return a model, or raise a ConfigError if it has no backbone."""
    if not isinstance(model, Model) or model.head_name is None:
        raise ConfigError(
            f"the model {type(model).__name__} has no named last layer, so it has no backbone to "
            "pretrain or load; use a subclass of alfa.models.Model with a `head_name`."
        )
    return model


def save_backbone(model: Model, path: Path) -> None:
    """Save all parameters of a model except for its last layer."""
    write_atomic(path, save({n: p.detach().contiguous() for n, p in _backbone(model).items()}))


def load_backbone(model: nn.Module, path: Path) -> None:
    """Load all parameters of a model except for its last layer from a safetensors file.

    A last layer and batch-norm statistics in the file are ignored.

    Raises:
        CheckpointError: the file is missing, or holds the weights of another model.
        ConfigError: the model has no backbone.
    """
    model = with_backbone(model)
    if not path.is_file():
        raise CheckpointError(f"the weights file {path} does not exist.")
    try:
        with safe_open(path, framework="pt") as file:
            found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"the weights file {path} is damaged or not a safetensors file ({error})."
        ) from None
    wanted = _backbone(model)
    if problems := _problems(wanted, found, f"{model.head_name}."):
        raise CheckpointError(
            f"the weights file {path} does not fit {type(model).__name__}: {'; '.join(problems)}."
        )
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(found[name])


def _backbone(model: Model) -> dict[str, nn.Parameter]:
    head = f"{model.head_name}."
    return {name: p for name, p in model.named_parameters() if not name.startswith(head)}


def _problems(wanted: dict[str, nn.Parameter], found: dict[str, Tensor], head: str) -> list[str]:
    missing = [name for name in wanted if name not in found]
    unknown = [
        name
        for name in found.keys() - wanted.keys()
        if not name.startswith(head) and name.rpartition(".")[2] not in _STATISTICS
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
