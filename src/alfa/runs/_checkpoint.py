"""Checkpoints: safetensors with the training state and a checksum in the header, never pickle."""

from __future__ import annotations

import hashlib
import inspect
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from alfa._io import write_atomic
from alfa.errors import AlfaWarning, CheckpointError, ConfigError, DamagedError

_FORMAT = "3"
# A run may go on in the other one of these.
_PRECISIONS = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Checkpoint:
    """A learner and how far its training has come.

    Attributes:
        tensors: the learner's state under ``learner.``, the optimizer's under ``optimizer.``.
        fingerprint: of the experiment that it belongs to.
        progress: plain values of the trainer.
        settings: learning rate and the like of the optimizer's parameter groups.
        source: where it is from.
    """

    tensors: dict[str, Tensor]
    fingerprint: str
    progress: dict[str, Any]
    settings: list[dict[str, Any]] = field(default_factory=list)
    source: str = "of this process"

    @classmethod
    def of(
        cls,
        learner: nn.Module,
        optimizer: torch.optim.Optimizer | None,
        *,
        fingerprint: str,
        progress: dict[str, Any],
    ) -> Checkpoint:
        # A model that the learner and its init both hold appears under two names.
        tensors = {f"learner.{k}": v.contiguous() for k, v in _unshared(learner).items()}
        settings: list[dict[str, Any]] = []
        if optimizer is not None:
            state = optimizer.state_dict()
            for index, values in state["state"].items():
                for key, value in values.items():
                    tensors[f"optimizer.{index}.{key}"] = torch.as_tensor(value)
            settings = [_settings(group) for group in state["param_groups"]]
        return cls(tensors, fingerprint, progress, settings)

    def without_optimizer(self) -> Checkpoint:
        """The learner alone, which is all that a test needs."""
        own = {key: tensor for key, tensor in self.tensors.items() if key.startswith("learner.")}
        return replace(self, tensors=own, settings=[])

    def to_bytes(self) -> bytes:
        """The content of a file."""
        metadata = {
            "format": _FORMAT,
            "fingerprint": self.fingerprint,
            "progress": json.dumps(self.progress),
            "settings": json.dumps(self.settings),
        }
        checksum = _checksum(save(self.tensors, metadata=metadata))
        return save(self.tensors, metadata={**metadata, "sha256": checksum})

    def save(self, path: Path, *, previous: Path | None = None) -> None:
        """Write a file; the one that was there before is kept under another name, or lost."""
        write_atomic(path, self.to_bytes(), previous=previous)

    @classmethod
    def load(cls, path: Path, *, fingerprint: str) -> Checkpoint:
        """Read a checkpoint of the experiment with this fingerprint.

        Raises:
            CheckpointError: it is missing, damaged, or of another experiment.
        """
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise CheckpointError(
                f"there is no checkpoint {path}; the weights of this run were not kept, or it has "
                "not come so far: train it, or use a run that has them."
            ) from None
        except OSError as error:
            # A disk that fails here may have another checkpoint that is whole.
            kind = CheckpointError if isinstance(error, PermissionError) else DamagedError
            raise kind(
                f"the checkpoint {path} cannot be read: {error.strerror or error}."
            ) from None
        return cls.from_bytes(content, fingerprint=fingerprint, source=str(path))

    @classmethod
    def from_bytes(cls, content: bytes, *, fingerprint: str, source: str) -> Checkpoint:
        """Read the content of a file.

        Args:
            content: of the file.
            fingerprint: of the experiment that it must belong to.
            source: where it is from.

        Raises:
            DamagedError: it is damaged.
            CheckpointError: it is of another experiment, or another version of alfa.
        """
        try:
            tensors = load(content)
            metadata = _header(content)["__metadata__"]
            found, progress = metadata["fingerprint"], json.loads(metadata["progress"])
            version, settings = metadata["format"], json.loads(metadata.get("settings", "[]"))
            # Before anything else that it says is believed, also its format.
            if metadata["sha256"] != _checksum(content):
                raise ValueError("its checksum is not that of its content")
        except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise DamagedError(
                f"the checkpoint {source} is damaged or not one of alfa ({error}); "
                "remove it, and train again or copy it anew."
            ) from None
        if version != _FORMAT:
            raise CheckpointError(
                f"the checkpoint {source} has format {version}, but this version of alfa reads "
                f"{_FORMAT}; use the version it was written with."
            )
        if found != fingerprint:
            raise CheckpointError(
                f"the checkpoint {source} belongs to another experiment (fingerprint {found}, but "
                f"this one has {fingerprint}); use the configuration it was trained with, "
                "or another run folder."
            )
        return cls(tensors, found, progress, settings, source)

    def check_progress(self, form: type[BaseModel]) -> None:
        """Make sure that it says how far the training is.

        Args:
            form: what it must say.

        Raises:
            DamagedError: it does not.
        """
        try:
            form.model_validate_json(json.dumps(self.progress), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            raise DamagedError(
                f"the checkpoint {self.source} is damaged: it does not say how far the training "
                f"is ({'.'.join(map(str, first['loc']))}: {first['msg']}); remove it, and train "
                "again or copy it anew."
            ) from None

    def restore(self, learner: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Put the state back into objects of the same experiment.

        Args:
            learner: whose tensors are changed.
            optimizer: its state and settings are changed.

        Raises:
            DamagedError: it holds something else than the state of these; nothing is changed.
        """
        own = _unshared(learner)
        try:
            found, states = self._parts()
            _check_tensors(own, found)
            if optimizer is not None:
                _check_states(optimizer, states, self.settings)
        except ValueError as error:
            raise DamagedError(
                f"the checkpoint {self.source} is damaged: {error}; remove it, and train again or "
                "copy it anew."
            ) from None
        with torch.no_grad():
            for key, tensor in own.items():
                # A buffer that was expanded cannot be written to, but is mostly as it was.
                if not _is_expanded(tensor) or not torch.equal(tensor.cpu(), found[key]):
                    tensor.copy_(found[key])
        if optimizer is not None:
            groups = optimizer.state_dict()["param_groups"]
            pairs = zip(groups, self.settings, strict=True)
            restored = [{**group, **saved} for group, saved in pairs]
            optimizer.load_state_dict({"state": states, "param_groups": restored})

    def _parts(self) -> tuple[dict[str, Tensor], dict[int, dict[str, Tensor]]]:
        """The learner's tensors by their names, and the optimizer's by parameter and name."""
        learner: dict[str, Tensor] = {}
        states: dict[int, dict[str, Tensor]] = {}
        for key, tensor in self.tensors.items():
            kind, _, rest = key.partition(".")
            index, _, name = rest.partition(".")
            if kind == "learner":
                learner[rest] = tensor
            elif kind == "optimizer" and index.isdecimal():
                states.setdefault(int(index), {})[name] = tensor
            else:
                raise ValueError(f"it has {key!r}, which is no part of a training")
        return learner, states


def load_newest(paths: Sequence[Path], load: Callable[[Path], Checkpoint]) -> Checkpoint | None:
    """The first checkpoint that is whole; None if there is none at all.

    Args:
        paths: of files, the newest first.
        load: reads and checks one.

    Raises:
        CheckpointError: there are some, but none of them can be used.
    """
    damaged: DamagedError | None = None
    for path in paths:
        if not path.is_file():
            continue
        try:
            found = load(path)
        except DamagedError as error:
            damaged = damaged or error
            continue
        if damaged is not None:
            told = f"{paths[0]} is damaged; the one before it is used"
            iteration = found.progress.get("iteration")
            told += "." if iteration is None else f", of iteration {iteration}."
            warnings.warn(told, AlfaWarning, stacklevel=3)
        return found
    if damaged is not None:
        raise damaged
    return None


def _unshared(learner: nn.Module) -> dict[str, Tensor]:
    seen: set[int] = set()
    state: dict[str, Tensor] = {}
    for key, tensor in learner.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            raise ConfigError(
                f"the state of the model has {key}, a {type(tensor).__name__}, but a checkpoint "
                "holds tensors only; keep it as a buffer, or leave `get_extra_state` out."
            )
        if id(tensor) not in seen:
            seen.add(id(tensor))
            state[key] = tensor.detach()
    return state


def _check_tensors(own: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    """Make sure that tensors can take the values of others: copying would stretch and round."""
    for key in sorted(own.keys() ^ found.keys()):
        raise ValueError(f"it {'lacks' if key in own else 'has'} {key!r}")
    for key, tensor in own.items():
        _check_like(key, found[key], tensor, tensor.shape)


def _is_expanded(tensor: Tensor) -> bool:
    places = zip(tensor.shape, tensor.stride(), strict=True)
    return any(size > 1 and not stride for size, stride in places)


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """The settings of a parameter group that JSON can hold."""
    return {
        key: value
        for key, value in group.items()
        if key != "params" and isinstance(value, bool | int | float | str | tuple | list | None)
    }


def _check_states(
    optimizer: torch.optim.Optimizer,
    states: dict[int, dict[str, Tensor]],
    settings: list[dict[str, Any]],
) -> None:
    """Raise unless the optimizer can use a state: kernels would read beyond smaller tensors."""
    if [set(group) for group in settings] != [set(_settings(g)) for g in optimizer.param_groups]:
        raise ValueError("its settings are not those of the optimizer")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    expected = _state_of(optimizer) if states else {}
    for index, state in states.items():
        if index >= len(parameters) or state.keys() != expected.keys():
            raise ValueError(f"its state {index} of the optimizer is not that of a parameter")
        for name, tensor in state.items():
            shape = parameters[index].shape if expected[name] else torch.Size()
            _check_like(f"optimizer.{index}.{name}", tensor, parameters[index], shape)


def _state_of(optimizer: torch.optim.Optimizer) -> dict[str, bool]:
    """Which state the optimizer keeps of a parameter, and whether of the parameter's shape."""
    probe = torch.zeros(2, 3, requires_grad=True)
    probe.grad = torch.ones_like(probe)
    settings = optimizer.param_groups[0]
    accepted = inspect.signature(type(optimizer)).parameters
    copy = type(optimizer)(
        [probe], **{k: v for k, v in settings.items() if k in accepted and k != "params"}
    )
    copy.step()
    return {name: torch.as_tensor(v).shape == probe.shape for name, v in copy.state[probe].items()}


def _check_like(key: str, found: Tensor, own: Tensor, shape: torch.Size) -> None:
    fits = found.dtype == own.dtype or {found.dtype, own.dtype} <= {*_PRECISIONS}
    if found.shape != shape or not fits:
        raise ValueError(
            f"its {key!r} is {found.dtype} {list(found.shape)}, not {own.dtype} {list(shape)}"
        )


def _header(content: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(content[8 : _data_begins(content)])
    return header


def _data_begins(content: bytes) -> int:
    """Behind the length of the header, and the header."""
    return 8 + int.from_bytes(content[:8], "little")


def _checksum(content: bytes) -> str:
    """Of a file's header, but for the checksum in it, and its data."""
    header = _header(content)
    header["__metadata__"].pop("sha256", None)
    found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    found.update(memoryview(content)[_data_begins(content) :])
    return found.hexdigest()
