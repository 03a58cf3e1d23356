"""A server with a model of characters, another one with a model of photos, and a client."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from alfa.backbones import BACKBONES
from alfa.build import build_learner
from alfa.config import compose
from alfa.data import Signature, Strokes
from alfa.runs import Checkpoint, Run, TrainingProgress
from alfa.serve import serving
from alfa.testing import register_small_backbone

httpx = pytest.importorskip("httpx2", reason="these tests need httpx2")
pytest.importorskip("fastapi_offline", reason="the server needs pip install 'alfa[serve]'")

NAMES = ("alef", "bet", "gimel")
RING = [[[0.2, 0.2], [0.8, 0.2], [0.8, 0.8], [0.2, 0.8], [0.2, 0.2]]]
STROKES = "application/vnd.alfa.strokes+json"


def as_file(pixels: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    """Encode pixels as an image file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


@dataclass(frozen=True)
class Client:
    """A client of the API with one session."""

    web: Any
    path: str

    @classmethod
    def open(cls, address: str, **body: Any) -> Client:
        web = httpx.Client(base_url=f"{address}/api/v1", timeout=60, trust_env=False)
        answer = web.post("/sessions", json=body)
        assert answer.status_code == 201, answer.text
        return cls(web, f"/sessions/{answer.json()['id']}")

    def call(self, method: str, path: str = "", *, status: int = 200, **options: Any) -> Any:
        """Send a request below the session, check the status, and return the JSON."""
        answer = self.web.request(method, self.path + path, **options)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def state(self) -> Any:
        return self.call("GET")

    def add_class(self, name: str) -> str:
        """Add a class and return its identifier."""
        added = self.call("POST", "/classes", json={"name": name}, status=201)
        return str(added["classes"][-1]["id"])

    def send(self, path: str, *files: bytes, status: int = 201, name: str = "a.png") -> Any:
        """Send photos."""
        parts = [("files", (name, content)) for content in files]
        return self.call("POST", path, files=parts, status=status)

    def draw(self, path: str, strokes: Any = RING, *, status: int = 201) -> Any:
        """Send a drawing."""
        text = str(strokes).encode()
        parts = [("files", ("drawing.json", text, STROKES))]
        return self.call("POST", path, files=parts, status=status)

    def teach(self, files: list[list[bytes]], names: tuple[str, ...] = NAMES) -> list[str]:
        """Create classes with photos, and return their identifiers."""
        ids = [self.add_class(name) for name in names]
        for class_id, own in zip(ids, files, strict=True):
            assert self.send(f"/classes/{class_id}/examples", *own)["refused"] == []
        return ids


@pytest.fixture(scope="session")
def run(characters_run: Path) -> Path:
    return characters_run


@pytest.fixture(scope="session")
def photo_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that classifies photos by the features of a small backbone."""
    name = register_small_backbone()
    overrides = ["tasks.dataset=photos"]
    experiment = compose("strokes", method="balanced-ridge", backbone=name, overrides=overrides)
    signature = Signature((8,), 5, "cross_entropy", backbone=name)
    made = Run.new(tmp_path_factory.mktemp("photos") / "run", experiment)
    made.create(signature)
    progress = TrainingProgress(iteration=1).model_dump(mode="json")
    learner = build_learner(experiment, signature)
    state = Checkpoint.of(learner, None, fingerprint=made.fingerprint, progress=progress)
    state.save(made.files.checkpoint("best"))
    yield made.path
    BACKBONES.pop(name, None)


@pytest.fixture(scope="session")
def drawings() -> np.ndarray:
    """Six drawings of each of three characters, ``[character, drawing, height, width]``."""
    return Strokes(num_classes=3, num_examples=6, size=40).images().images.reshape(3, 6, 40, 40)


@pytest.fixture(scope="session")
def files(drawings: np.ndarray) -> list[list[bytes]]:
    """Five drawings of each character as files."""
    return [[as_file(pixels) for pixels in own[:5]] for own in drawings]


@pytest.fixture(scope="session")
def photos() -> list[list[bytes]]:
    """Six photos of each of three classes: noise around a color."""
    rng = np.random.default_rng(0)
    colors = rng.integers(40, 216, (3, 1, 1, 3))
    noise = rng.integers(-40, 40, (3, 6, 60, 80, 3))
    pixels = (colors[:, None] + noise).astype(np.uint8)
    return [[as_file(image, "JPEG") for image in own] for own in pixels]


@pytest.fixture(scope="session")
def server(run: Path) -> Iterator[Any]:
    """The server, during the whole test session."""
    with serving(run) as running:
        yield running


@pytest.fixture(scope="session")
def photo_server(photo_run: Path) -> Iterator[Any]:
    """A server whose own model is for photos."""
    with serving(photo_run) as running:
        yield running


@pytest.fixture
def open_client() -> Iterator[Callable[..., Client]]:
    """Open sessions at the address of a server."""
    with ExitStack() as stack:

        def make(address: str) -> Client:
            made = Client.open(address)
            stack.callback(made.web.close)
            return made

        yield make


@pytest.fixture
def client(server: Any, open_client: Callable[..., Client]) -> Client:
    """A client of the server for drawings."""
    return open_client(server.address)


@pytest.fixture
def photo_client(photo_server: Any, open_client: Callable[..., Client]) -> Client:
    """A client of the server for photos."""
    return open_client(photo_server.address)
