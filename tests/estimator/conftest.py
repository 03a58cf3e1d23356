"""Small runs, made once for each worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from alfa.testing import small_run


@pytest.fixture(scope="session")
def run(characters_run: Path) -> Path:
    return characters_run


@pytest.fixture(scope="session")
def linear_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("runs"), head="learned")


@pytest.fixture(scope="session")
def curves(curves_run: Path) -> Path:
    return curves_run
