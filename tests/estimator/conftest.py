"""Small runs, made once for each worker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from alfa.data import Strokes
from alfa.testing import small_run

Characters = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def linear_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("runs"), head="learned")


@pytest.fixture(scope="session")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("runs"), kind="curves")


@pytest.fixture(scope="session")
def characters() -> Characters:
    """Six images of each of three characters, ``[image, height, width]``, and their labels."""
    images = Strokes(num_classes=3, num_examples=6, size=16).images().images[:, 0]
    return images, np.repeat(["alef", "bet", "gimel"], 6)
