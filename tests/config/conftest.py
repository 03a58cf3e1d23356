"""Shared fixtures of the configuration tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w


@pytest.fixture
def write(tmp_path: Path):
    """Write an experiment's text or values to a file."""

    def make(content: str | bytes | dict[str, Any], name: str = "my.toml") -> Path:
        path = tmp_path / name
        if isinstance(content, dict):
            content = tomli_w.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make
