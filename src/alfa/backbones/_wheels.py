"""Weights that Python packages contain as files; their code is never imported."""

from __future__ import annotations

import hashlib
import importlib.util
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from alfa.errors import ConfigError, DamagedError


@dataclass(frozen=True)
class WheelFile:
    """A file with weights in an installed package.

    Attributes:
        package: the name that Python code would import.
        path: the path of the file in the package.
        sha256: the digest of the file.
        install: the command that installs the package.
        repair: the command that installs the package again.
    """

    package: str
    path: str
    sha256: str
    install: str
    repair: str

    def find(self) -> Path | None:
        """Return the path of the file, or None if the package is not installed."""
        # For a top-level package, this does not run its code.
        spec = importlib.util.find_spec(self.package)
        for folder in (spec and spec.submodule_search_locations) or ():
            path = Path(folder, self.path)
            if path.is_file():
                return path
        return None

    def load(self, backbone: str) -> Mapping[str, Tensor]:
        """Return the tensors of the file by name, after a check of its digest.

        Raises:
            ConfigError: the package is not installed.
            DamagedError: the file is not the expected one.
        """
        path = self.find()
        if path is None:
            raise ConfigError(
                f"the backbone {backbone!r} needs the package {self.package}, which contains its "
                f"weights; run `{self.install}`."
            )
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            raise DamagedError(
                f"the weights of the backbone {backbone!r} in {path} have the SHA-256 digest "
                f"{digest}, but must have {self.sha256}; run `{self.repair}`."
            )
        # Only tensors: no code of the file runs.
        state: Mapping[str, Tensor] = torch.load(
            io.BytesIO(content), map_location="cpu", weights_only=True
        )
        return state
