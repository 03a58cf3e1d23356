"""An exported model, created once per worker."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest

from alfa import FewShotClassifier
from alfa.export import Exported, export_onnx


@pytest.fixture(scope="session")
def classifier(characters_run: Path, characters) -> FewShotClassifier:
    return FewShotClassifier(characters_run).fit(*characters)


@pytest.fixture(scope="session")
def export_and_noise(
    classifier, characters, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Exported, list[object]]:
    """Return the first export of a process, and all its warnings and log messages."""
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    noise: list[object] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = noise.append  # type: ignore[method-assign]
    loggers = (logging.getLogger(), logging.getLogger("torch"))
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            images = [image[..., None] for image in characters[0]]
            exported = export_onnx(classifier, path, check_on=images)
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    return exported, [*noise, *caught]


@pytest.fixture(scope="session")
def exported(export_and_noise) -> Exported:
    """Return the shared export; tests must not change it."""
    return export_and_noise[0]
