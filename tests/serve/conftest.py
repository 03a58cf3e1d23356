"""A small run, its page, and pictures."""

from __future__ import annotations

import io
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from alfa.data import Strokes
from alfa.serve import Model, Server, serving
from alfa.serve._model import UploadedImage
from alfa.serve._session import Session

NAMES = ("alef", "bet", "gimel")


def _as_file(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="session")
def run(characters_run: Path) -> Path:
    return characters_run


@pytest.fixture(scope="session")
def model(run: Path) -> Model:
    return Model.open(run)


@pytest.fixture
def session(model: Model) -> Session:
    return Session(model)


@pytest.fixture(scope="session")
def drawings() -> np.ndarray:
    """Six drawings of each of three characters, ``[character, drawing, height, width]``."""
    return Strokes(num_classes=3, num_examples=6, size=40).images().images.reshape(3, 6, 40, 40)


@pytest.fixture(scope="session")
def pictures(drawings: np.ndarray) -> list[list[bytes]]:
    """The same drawings as files."""
    return [[_as_file(pixels) for pixels in each] for each in drawings]


@pytest.fixture(scope="session")
def seen(model: Model) -> Callable[..., list[UploadedImage]]:
    """Decode files, all with the same name."""
    return lambda *files, name="x.png": [model.receive(name, file) for file in files]


@pytest.fixture
def taught(
    session: Session, pictures: list[list[bytes]], seen: Callable[..., list[UploadedImage]]
) -> Session:
    """A session with five pictures in each of three classes."""
    session.add_class()
    for each, name, files in zip(session.classes, NAMES, pictures, strict=True):
        session.rename(each.number, name)
        assert session.add_uploads(each.number, seen(*files[:5])) == (5, [])
    return session


@pytest.fixture
def make_session(model: Model) -> Callable[[], Session]:
    return lambda: Session(model)


@pytest.fixture(scope="session")
def connections() -> Iterator[list[Any]]:
    """All addresses to which this process connects while the page is open."""
    found: list[Any] = []
    connect = socket.socket.connect

    def record(self: socket.socket, address: Any) -> None:
        found.append(address)
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", record)
        yield found


@pytest.fixture(scope="session")
def served(run: Path, connections: list[Any]) -> Iterator[Server]:
    """The page, served during the whole test session."""
    pytest.importorskip("gradio", reason="the page needs gradio: pip install 'alfa[serve]'")
    with serving(run) as page:
        yield page


@pytest.fixture(scope="session")
def address(served: Server) -> str:
    return served.address
