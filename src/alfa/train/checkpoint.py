"""Checkpoints: safetensors with the training state and a checksum in the header, never pickle."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from alfa.errors import CheckpointError, DamagedError
from alfa.train.files import write_atomic

# The first one has no checksum.
_FORMAT, _FIRST_FORMAT = "2", "1"


@dataclass(frozen=True)
class Checkpoint:
    """A learner and how far its training has come.

    Attributes:
        tensors: the learner's state under ``learner.``, the optimizer's under ``optimizer.``.
        fingerprint: of the experiment that it belongs to.
        progress: plain values of the trainer.
    """

    tensors: dict[str, Tensor]
    fingerprint: str
    progress: dict[str, Any]

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
        if optimizer is not None:
            for index, state in optimizer.state_dict()["state"].items():
                for key, value in state.items():
                    tensors[f"optimizer.{index}.{key}"] = torch.as_tensor(value)
        return cls(tensors, fingerprint, progress)

    def to_bytes(self) -> bytes:
        """The content of a file."""
        metadata = {
            "format": _FORMAT,
            "fingerprint": self.fingerprint,
            "progress": json.dumps(self.progress),
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
            raise CheckpointError(f"there is no checkpoint {path}.") from None
        except OSError as error:
            raise CheckpointError(
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
            version = metadata["format"]
            if version == _FORMAT and metadata["sha256"] != _checksum(content):
                raise ValueError("its checksum is not that of its content")
        except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise DamagedError(
                f"the checkpoint {source} is damaged or not one of alfa ({error}); "
                "remove it, and train again or copy it anew."
            ) from None
        if version not in (_FORMAT, _FIRST_FORMAT):
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
        return cls(tensors, found, progress)

    def restore(self, learner: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Put the state back into objects of the same experiment."""
        with torch.no_grad():
            for key, tensor in _unshared(learner).items():
                tensor.copy_(self.tensors[f"learner.{key}"])
        if optimizer is not None:
            content = optimizer.state_dict()
            content["state"] = {}
            for key, tensor in self.tensors.items():
                kind, _, rest = key.partition(".")
                if kind == "optimizer":
                    index, name = rest.split(".")
                    content["state"].setdefault(int(index), {})[name] = tensor
            _check_state(optimizer, content["state"])
            optimizer.load_state_dict(content)


def _unshared(learner: nn.Module) -> dict[str, Tensor]:
    seen: set[int] = set()
    state: dict[str, Tensor] = {}
    for key, tensor in learner.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            state[key] = tensor.detach()
    return state


def _check_state(optimizer: torch.optim.Optimizer, state: dict[int, dict[str, Tensor]]) -> None:
    """Make sure that an optimizer can use a state; it would find out in its next step only."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, own in state.items():
        if own.keys() != state[min(state)].keys():
            raise ValueError(f"the optimizer's state {index} has not the parts of the others")
        for name, tensor in own.items():
            if tensor.ndim and tensor.shape != parameters[index].shape:
                raise ValueError(f"the optimizer's {name} of {index} has another shape")


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
