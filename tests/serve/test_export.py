"""The model that the page exports."""

from __future__ import annotations

import importlib
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

from alfa.serve._actions import Actions
from alfa.serve._model import can_export
from alfa.serve._session import Session, Sessions
from alfa.serve._transfers import File, Transfers

onnxruntime = pytest.importorskip("onnxruntime", reason="needs pip install 'alfa[export]'")


def _probabilities(content: bytes, pixels: np.ndarray) -> dict[str, float]:
    """Return the probabilities of an exported model by class name."""
    model = onnxruntime.InferenceSession(content)
    names = json.loads(model.get_modelmeta().custom_metadata_map["classes"])
    found, _ = model.run(None, {"images": pixels.transpose(1, 2, 0)[None]})
    return dict(zip(names, found[0].tolist(), strict=True))


def test_export_matches_predictions_and_writes_no_files(
    taught: Session,
    pictures: list[list[bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run all actions while no temporary file can be created."""
    # The first import creates an empty folder for compiled code.
    importlib.import_module("torch._dynamo")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError):
        tempfile.mkstemp()
    assert can_export()
    actions = Actions(Sessions(lambda: taught), Transfers())
    actions.learn("me")
    saved = actions.keep("me", {"do": "save"}).file
    assert saved is not None
    token = actions.transfers.put(actions.transfers.take(saved[0], File))
    assert actions.keep("me", {"do": "load", "files": [token]}).problems == ()
    actions.teach("me", {"do": "rename", "class": taught.classes[0].number, "name": "aleph"})
    assert actions.learn("me").problems == ()
    outcome = actions.keep("me", {"do": "export"})
    assert outcome.problems == ()
    assert outcome.file is not None
    content = actions.transfers.take(outcome.file[0], File).content
    pixels = taught.model.read(pictures[2][5])
    [found] = taught.predict([("", pixels)])
    told = _probabilities(content, pixels)
    assert list(told) == ["aleph", "bet", "gimel"]
    assert told == pytest.approx({name: p for _, name, p in found.classes}, abs=1e-5)
    assert not list(tmp_path.iterdir())


def test_export_is_checked_on_the_examples(
    taught: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[np.ndarray] = []

    class Made:
        content = b"file"

    def make(classifier: object, *, check_on: list[np.ndarray]) -> Made:
        given.extend(check_on)
        return Made()

    monkeypatch.setattr("alfa.serve._model.make_onnx", make)
    assert taught.learn().to_onnx(["a", "b", "c"]) == b"file"
    expected = [picture.pixels for each in taught.classes for picture in each.examples]
    assert len(given) == len(expected) == 15
    for image, pixels in zip(given, expected, strict=True):
        assert (image.transpose(2, 0, 1) == pixels).all()


def test_export_requires_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not can_export()
