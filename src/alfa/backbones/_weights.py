"""Weights files that users save with torch or safetensors."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from alfa.errors import CheckpointError, did_you_mean

# The number of names that an error lists.
_MOST_LISTED = 5
# A counter of batch norm, which files of old versions of torch lack.
_COUNTER = "num_batches_tracked"


def load_weights(module: nn.Module, path: Path) -> None:
    """Load all parameters and buffers of a module from a safetensors file or a state dict.

    Raises:
        CheckpointError: the file cannot be read, or does not fit the module.
    """
    state = _read(path)
    if problems := _problems(module.state_dict(), state):
        raise CheckpointError(
            f"the weights file {path} does not fit {type(module).__name__}: {'; '.join(problems)}."
        )
    module.load_state_dict(state, strict=False)


def _read(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise CheckpointError(f"the weights file {path} does not exist.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        # Only tensors and containers: no code of the file runs.
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"the weights file {path} is damaged, or contains more than tensors ({reason}); save "
            "`module.state_dict()` with torch or safetensors."
        ) from None
    if not isinstance(state, Mapping) or not all(isinstance(x, Tensor) for x in state.values()):
        found = type(state).__name__
        if isinstance(state, Mapping):
            found = f"a dictionary of {_shortened(sorted(map(str, state)))}"
        raise CheckpointError(
            f"the weights file {path} must contain a state dict, which maps names to tensors, got "
            f"{found}; save `module.state_dict()` alone."
        )
    return state


def _problems(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> list[str]:
    missing = [name for name in wanted if name not in found and not name.endswith(_COUNTER)]
    unknown = [name for name in found if name not in wanted]
    wrong = []
    for name, tensor in wanted.items():
        given = found.get(name, tensor)
        if given.shape != tensor.shape:
            wrong.append(f"{name} is {list(given.shape)}, but must be {list(tensor.shape)}")
        elif given.is_floating_point() != tensor.is_floating_point():
            wrong.append(f"{name} is {given.dtype}, but must be {tensor.dtype}")
    problems = []
    if missing:
        hint = did_you_mean(missing[0], unknown).strip()
        problems.append(f"it lacks {_shortened(missing)}{f' ({hint})' if hint else ''}")
    if unknown:
        problems.append(f"it has {_shortened(unknown)}, which the module lacks")
    return problems + ([_shortened(wrong)] if wrong else [])


def _shortened(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"{', '.join(names[:_MOST_LISTED])}{more}"
