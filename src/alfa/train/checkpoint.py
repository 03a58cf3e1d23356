"""Checkpoints: safetensors with the training state in the header, never pickle."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from alfa.errors import CheckpointError
from alfa.train.files import write_atomic

_FORMAT = "1"


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

    def save(self, path: Path) -> None:
        metadata = {
            "format": _FORMAT,
            "fingerprint": self.fingerprint,
            "progress": json.dumps(self.progress),
        }
        write_atomic(path, save(self.tensors, metadata=metadata))

    @classmethod
    def load(cls, path: Path, *, fingerprint: str) -> Checkpoint:
        """Read a checkpoint of the experiment with this fingerprint.

        Raises:
            CheckpointError: it is missing, damaged, or of another experiment.
        """
        if not path.is_file():
            raise CheckpointError(f"there is no checkpoint {path}.")
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            found, progress = metadata["fingerprint"], json.loads(metadata["progress"])
            version = metadata["format"]
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise CheckpointError(
                f"the checkpoint {path} is damaged or not one of alfa ({error}); "
                "remove it, and train again or copy it anew."
            ) from None
        if version != _FORMAT:
            raise CheckpointError(
                f"the checkpoint {path} has format {version}, but this version of alfa reads "
                f"{_FORMAT}; use the version it was written with."
            )
        if found != fingerprint:
            raise CheckpointError(
                f"the checkpoint {path} belongs to another experiment (fingerprint {found}, but "
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
            optimizer.load_state_dict(content)


def _unshared(learner: nn.Module) -> dict[str, Tensor]:
    seen: set[int] = set()
    state: dict[str, Tensor] = {}
    for key, tensor in learner.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            state[key] = tensor.detach()
    return state
