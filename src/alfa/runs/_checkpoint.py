"""Checkpoints: safetensors with the training state and a checksum in the header, never pickle."""

from __future__ import annotations

import hashlib
import inspect
import json
import warnings
from collections.abc import Sequence
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
# A run may be resumed in the other one of these precisions.
_PRECISIONS = {torch.float32, torch.float64}


@dataclass(frozen=True)
class Checkpoint:
    """The state of a learner, its optimizer, and its training.

    Attributes:
        tensors: the learner's state under ``learner.``, and, in a training state, the objective's
            under ``objective.`` and the optimizer's under ``optimizer.``.
        fingerprint: the fingerprint of the experiment.
        progress: JSON values of the trainer.
        settings: the settings of the optimizer's parameter groups, such as learning rates.
        source: the origin of the checkpoint, for error messages.
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
        objective: nn.Module | None = None,
    ) -> Checkpoint:
        """Return a checkpoint of the current state."""
        tensors = {k: v.contiguous() for k, v in _state(learner, objective).items()}
        settings: list[dict[str, Any]] = []
        if optimizer is not None:
            state = optimizer.state_dict()
            for index, values in state["state"].items():
                for key, value in values.items():
                    tensors[f"optimizer.{index}.{key}"] = torch.as_tensor(value)
            settings = [_settings(group) for group in state["param_groups"]]
        return cls(tensors, fingerprint, progress, settings)

    def without_optimizer(self) -> Checkpoint:
        """Return the learner's part, which is enough for a test."""
        own = {key: tensor for key, tensor in self.tensors.items() if key.startswith("learner.")}
        return replace(self, tensors=own, settings=[])

    def to_bytes(self) -> bytes:
        """Return the content of a checkpoint file."""
        metadata = {
            "format": _FORMAT,
            "fingerprint": self.fingerprint,
            "progress": json.dumps(self.progress),
            "settings": json.dumps(self.settings),
        }
        checksum = _checksum(save(self.tensors, metadata=metadata))
        return save(self.tensors, metadata={**metadata, "sha256": checksum})

    def save(self, path: Path, *, previous: Path | None = None) -> None:
        """Save to a file; `previous` is the new name of the old file, which is otherwise lost."""
        write_atomic(path, self.to_bytes(), previous=previous)

    @classmethod
    def load(cls, path: Path, *, fingerprint: str) -> Checkpoint:
        """Load a checkpoint; raise a CheckpointError if it is missing or of another experiment."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise CheckpointError(
                f"{path} does not exist: the checkpoint was deleted or not saved yet; train the "
                "run, or use another one."
            ) from None
        except OSError as error:
            # After a disk failure, another checkpoint may be intact.
            kind = CheckpointError if isinstance(error, PermissionError) else DamagedError
            raise kind(
                f"the checkpoint {path} cannot be read: {error.strerror or error}."
            ) from None
        return cls.from_bytes(content, fingerprint=fingerprint, source=str(path))

    @classmethod
    def from_bytes(cls, content: bytes, *, fingerprint: str, source: str) -> Checkpoint:
        """Load a checkpoint from the content of a file; `source` names it in errors."""
        try:
            tensors = load(content)
            metadata = _split(content)[0]["__metadata__"]
            found, progress = metadata["fingerprint"], json.loads(metadata["progress"])
            version, settings = metadata["format"], json.loads(metadata.get("settings", "[]"))
            # Check this before trusting anything else, including the format.
            if metadata["sha256"] != _checksum(content):
                raise ValueError("its checksum does not match its content")
        except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise _damaged(source, f"is damaged or not from alfa ({error})") from None
        if version != _FORMAT:
            raise CheckpointError(
                f"the checkpoint {source} has format {version}, but this version of alfa reads "
                f"{_FORMAT}; use the version that wrote it."
            )
        if found != fingerprint:
            raise CheckpointError(
                f"the checkpoint {source} belongs to another experiment (fingerprint {found}, but "
                f"this one has {fingerprint}); use the configuration it was trained with, "
                "or another run folder."
            )
        return cls(tensors, found, progress, settings, source)

    def restore(
        self,
        learner: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        objective: nn.Module | None = None,
    ) -> None:
        """Restore the state of objects, or raise a DamagedError and leave them unchanged."""
        own = _state(learner, objective)
        if problem := self._mismatch(own, optimizer):
            raise _damaged(self.source, f"is damaged: {problem}")
        with torch.no_grad():
            for key, tensor in own.items():
                saved = self.tensors[key]
                # An expanded buffer is not writable, but rarely changes.
                if not _is_expanded(tensor) or not torch.equal(tensor.cpu(), saved):
                    tensor.copy_(saved)
        if optimizer is not None:
            states: dict[int, dict[str, Tensor]] = {}
            for key, tensor in self.tensors.items():
                if key.startswith("optimizer."):
                    _, index, name = key.split(".", 2)
                    states.setdefault(int(index), {})[name] = tensor
            groups = optimizer.state_dict()["param_groups"]
            restored = [group | saved for group, saved in zip(groups, self.settings, strict=True)]
            optimizer.load_state_dict({"state": states, "param_groups": restored})

    def _mismatch(
        self, own: dict[str, Tensor], optimizer: torch.optim.Optimizer | None
    ) -> str | None:
        """Describe the first name, shape, or type that does not fit; return None if all fit.

        Without this check, copying would broadcast, and kernels would read beyond short tensors.
        """
        expected = {key: (tensor, tensor.shape) for key, tensor in own.items()}
        found = set(self.tensors)
        states = {key for key in found if key.startswith("optimizer.")}
        if optimizer is None:
            # Only training needs the state of the optimizer and the objective.
            found = {key for key in found if key.startswith("learner.")}
        else:
            groups = optimizer.param_groups
            if [set(group) for group in self.settings] != [set(_settings(g)) for g in groups]:
                return "its settings do not match the optimizer"
            indices = {key.split(".")[1] for key in states}
            state = _expected_state(optimizer) if indices else {}
            for index, parameter in enumerate(p for group in groups for p in group["params"]):
                for name, has_shape in state.items() if str(index) in indices else ():
                    shape = parameter.shape if has_shape else torch.Size()
                    expected[f"optimizer.{index}.{name}"] = parameter, shape
        for key in sorted(expected.keys() ^ found):
            return f"it {'lacks' if key in expected else 'has'} {key!r}"
        for key, (like, shape) in expected.items():
            tensor = self.tensors[key]
            fits = tensor.dtype == like.dtype or {tensor.dtype, like.dtype} <= _PRECISIONS
            if tensor.shape != shape or not fits:
                found_kind = f"{tensor.dtype} {list(tensor.shape)}"
                return f"its {key!r} is {found_kind}, not {like.dtype} {list(shape)}"
        return None


def load_newest(
    paths: Sequence[Path], progress: type[BaseModel], *, fingerprint: str
) -> Checkpoint | None:
    """Load the first intact checkpoint with valid progress; return None if no file exists."""
    errors: list[DamagedError] = []
    for path in filter(Path.is_file, paths):
        try:
            found = Checkpoint.load(path, fingerprint=fingerprint)
            progress.model_validate_json(json.dumps(found.progress), strict=True)
        except DamagedError as error:
            errors.append(error)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            problem = f"is damaged: its training progress is invalid ({where}: {first['msg']})"
            errors.append(_damaged(str(path), problem))
        else:
            if errors:
                iteration = found.progress.get("iteration")
                which = "" if iteration is None else f", of iteration {iteration}"
                warnings.warn(
                    f"{paths[0]} is damaged; alfa uses the checkpoint before it{which}.",
                    AlfaWarning,
                    stacklevel=3,
                )
            return found
    if errors:
        raise errors[0]
    return None


def _damaged(source: str, problem: str) -> DamagedError:
    return DamagedError(
        f"the checkpoint {source} {problem}; remove it, and train again or restore a copy."
    )


def _state(learner: nn.Module, objective: nn.Module | None) -> dict[str, Tensor]:
    """Return the tensors of a learner and an objective."""
    modules = {"learner": learner} | ({} if objective is None else {"objective": objective})
    return {f"{n}.{key}": t for n, part in modules.items() for key, t in _tensors(part).items()}


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a module, each once even if it has several names."""
    seen: set[int] = set()
    state: dict[str, Tensor] = {}
    for key, tensor in module.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            raise ConfigError(
                f"the state of the model has {key}, a {type(tensor).__name__}, but a checkpoint "
                "holds only tensors; make it a buffer, or remove `get_extra_state`."
            )
        if id(tensor) not in seen:
            seen.add(id(tensor))
            state[key] = tensor.detach()
    return state


def _is_expanded(tensor: Tensor) -> bool:
    dims = zip(tensor.shape, tensor.stride(), strict=True)
    return any(size > 1 and not stride for size, stride in dims)


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a parameter group that JSON can represent."""
    return {
        key: value
        for key, value in group.items()
        if key != "params" and isinstance(value, bool | int | float | str | tuple | list | None)
    }


def _expected_state(optimizer: torch.optim.Optimizer) -> dict[str, bool]:
    """Return the names of a parameter's state, and which of them have the parameter's shape."""
    probe = torch.zeros(2, 3, requires_grad=True)
    probe.grad = torch.ones_like(probe)
    accepted = inspect.signature(type(optimizer)).parameters.keys() - {"params"}
    settings = {k: v for k, v in optimizer.param_groups[0].items() if k in accepted}
    copy = type(optimizer)([probe], **settings)
    copy.step()
    return {name: torch.as_tensor(v).shape == probe.shape for name, v in copy.state[probe].items()}


def _split(content: bytes) -> tuple[dict[str, Any], memoryview]:
    """Return the header and the data of a safetensors file."""
    begin = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:begin]), memoryview(content)[begin:]


def _checksum(content: bytes) -> str:
    """Return the checksum of a file's header, except for the checksum in it, and its data."""
    header, data = _split(content)
    header["__metadata__"].pop("sha256", None)
    checksum = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    checksum.update(data)
    return checksum.hexdigest()
