"""The endpoints for learning, predictions, and downloads."""

from __future__ import annotations

import csv
import importlib
import io
import json
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from alfa import FewShotClassifier
from alfa.backbones import Backbone
from alfa.config import compose
from alfa.data import ImageFormat, Strokes, draw
from alfa.errors import AlfaWarning, CheckpointError, ConfigError
from alfa.runs import Run
from alfa.serve import create_app, serving

Files = list[list[bytes]]
CROSS = [[[0.2, 0.2], [0.8, 0.8]], [[0.8, 0.2], [0.2, 0.8]]]
RING = [[[0.2, 0.2], [0.8, 0.2], [0.8, 0.8], [0.2, 0.8], [0.2, 0.2]]]


def probabilities(prediction: Any) -> dict[str, float]:
    return {each["name"]: each["probability"] for each in prediction["probabilities"]}


@pytest.fixture
def taught(photo_client: Any, photos: Files) -> Any:
    """A client that has learned five photos of each of three classes."""
    photo_client.teach([own[:5] for own in photos])
    photo_client.call("POST", "/learn")
    return photo_client


def test_learning_reports_the_cross_validation(taught: Any, photo_run: Path, photos: Files) -> None:
    state = taught.state()
    learned, ids = state["learned"], [each["id"] for each in state["classes"]]
    assert (state["stale"], learned["class_ids"]) == (False, ids)
    assert learned["head"] == "ridge"
    clf = taught_classifier(photo_run, photos)
    assert learned["accuracy"]["value"] == clf.accuracy_.accuracy
    assert learned["accuracy"]["text"] == str(clf.accuracy_)
    assert learned["accuracy"]["num_examples"] == 15
    assert learned["accuracy_reason"] is None
    assert learned["threshold"] == pytest.approx(clf.threshold_, abs=1e-6)
    assert learned["calibration_error"] == pytest.approx(clf.calibration_.error, abs=1e-6)
    shares = [each["accuracy"] for each in learned["per_class"]]
    assert np.mean(shares) == pytest.approx(clf.held_out_.hits.mean())
    assert [each["num_examples"] for each in learned["per_class"]] == [5, 5, 5]


def taught_classifier(run: Path, photos: Files) -> FewShotClassifier:
    """Fit a classifier to the same photos without the server."""
    image_format = ImageFormat.of(Run.open(run).signature)
    levels = [image_format.decode(content)[0] for own in photos for content in own[:5]]
    images = [image.transpose(1, 2, 0) for image in levels]
    return FewShotClassifier(run).fit(images, np.repeat(np.arange(3), 5))


def test_predictions_match_the_classifier(taught: Any, photo_run: Path, photos: Files) -> None:
    clf = taught_classifier(photo_run, photos)
    image_format = ImageFormat.of(Run.open(photo_run).signature)
    new = [own[5] for own in photos]
    expected = clf.assess([image_format.decode(file)[0].transpose(1, 2, 0) for file in new])
    answer = taught.send("/predict", *new, b"hello", status=200)
    assert [each["code"] for each in answer["refused"]] == ["not-an-image"]
    names = ["alef", "bet", "gimel"]
    for number, found in enumerate(answer["predictions"]):
        own = dict(zip(names, expected.probabilities[number].tolist(), strict=True))
        assert probabilities(found) == pytest.approx(own, abs=1e-6)
        ranked = [each["probability"] for each in found["probabilities"]]
        assert ranked == sorted(ranked, reverse=True)
        assert found["familiarity"] == pytest.approx(expected.familiarity[number], abs=1e-6)
        assert found["is_none"] == expected.is_none[number]
        assert found["label"] == (None if found["is_none"] else names[number])
    assert taught.send("/predict", b"hello", status=200)["predictions"] == []


def test_an_unfamiliar_photo_is_none_of_these(taught: Any) -> None:
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 2, (60, 80, 1)) * np.array([255, 255, 255])
    buffer = io.BytesIO()
    Image.fromarray(noise.astype(np.uint8)).save(buffer, "PNG")
    [found] = taught.send("/predict", buffer.getvalue(), status=200)["predictions"]
    assert found["familiarity"] < found["threshold"]
    assert (found["is_none"], found["label"]) == (True, None)


def test_wrongly_labeled_photos_are_confused(photo_client: Any, photos: Files) -> None:
    ids = photo_client.teach([[*photos[0][:5], photos[1][5]], photos[1][:5], photos[2][:5]])
    state = photo_client.call("POST", "/learn")
    wrong = state["classes"][0]["examples"][5]["id"]
    confused = {each["example_id"]: each for each in state["learned"]["confused"]}
    assert confused[wrong] == {"example_id": wrong, "true": ids[0], "predicted": ids[1]}


def test_learning_needs_photos_of_two_classes(client: Any, files: Files) -> None:
    def refused() -> str:
        answer = client.call("POST", "/learn", status=409)
        assert answer["detail"] == client.state()["learn_reason"]
        return str(answer["detail"])

    assert refused() == "a classifier needs at least two classes; add one."
    cat, dog = client.add_class("cat"), client.add_class("dog")
    assert refused().startswith("“cat” and “dog” have no photos yet")
    client.send(f"/classes/{cat}/examples", files[0][0])
    assert refused() == "“dog” has no photos yet; add some, or delete it."
    for path in ("/label-next", "/predict"):
        options = {"files": {"files": files[0][0]}} if path == "/predict" else {}
        assert client.call("POST", path, status=409, **options)["code"] == "not-learned"
    client.send(f"/classes/{dog}/examples", files[1][0])
    learned = client.call("POST", "/learn")["learned"]
    assert learned["accuracy"] is None
    assert "needs at least two different photos" in learned["accuracy_reason"]
    assert (learned["threshold"], learned["confused"]) == (None, [])


def test_a_classifier_follows_its_classes(taught: Any, photos: Files) -> None:
    classes = taught.state()["classes"]
    first, second = classes[0]["id"], classes[1]["id"]
    taught.call("PATCH", f"/classes/{first}", json={"name": "aleph"})
    state = taught.state()
    assert not state["stale"]
    [found] = taught.send("/predict", photos[0][5], status=200)["predictions"]
    assert "aleph" in probabilities(found)
    taught.call("DELETE", f"/examples/{classes[1]['examples'][0]['id']}")
    assert taught.state()["stale"]
    assert taught.call("POST", "/undo")["stale"] is False
    # A new class does not change the classifier, but the loss of a class removes it.
    new = taught.add_class("new")
    assert taught.state()["learned"] is not None
    taught.call("DELETE", f"/classes/{new}")
    assert taught.call("DELETE", f"/classes/{second}")["learned"] is None
    assert taught.call("POST", "/undo")["learned"]["accuracy"] is not None


def test_label_next_ranks_unlabeled_photos(taught: Any, photos: Files) -> None:
    assert taught.call("POST", "/label-next", status=409)["code"] == "nothing-to-label"
    ids = taught.send("/unlabeled", *[own[5] for own in photos])["added"]
    assert {each["usefulness"] for each in taught.state()["unlabeled"]} == {None}
    ranked = taught.call("POST", "/label-next")["unlabeled"]
    assert sorted(each["id"] for each in ranked) == sorted(ids)
    assert [each["usefulness"] for each in ranked] == pytest.approx([1, 2 / 3, 1 / 3])
    # A new photo has no rank yet.
    taught.send("/unlabeled", photos[0][0])
    assert taught.state()["unlabeled"][-1]["usefulness"] is None
    target = taught.state()["classes"][0]["id"]
    state = taught.call("PATCH", f"/examples/{ranked[0]['id']}", json={"class_id": target})
    assert state["classes"][0]["examples"][-1]["id"] == ranked[0]["id"]
    assert state["stale"]


def test_each_photo_is_embedded_once(
    photo_client: Any, photos: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    features = Backbone.features

    def count(self: Backbone, levels: np.ndarray) -> np.ndarray:
        seen.append(len(levels))
        return features(self, levels)

    monkeypatch.setattr(Backbone, "features", count)
    photo_client.teach([own[:4] for own in photos])
    photo_client.send("/unlabeled", photos[0][4], photos[1][4])
    for _ in range(2):
        photo_client.call("POST", "/learn")
        photo_client.call("POST", "/label-next")
    assert sum(seen) == 14
    # A photo that was classified before, too.
    for _ in range(2):
        photo_client.send("/predict", photos[2][4], status=200)
    photo_client.send("/unlabeled", photos[2][4])
    assert sum(seen) == 15


def test_learning_does_not_read_the_run_folder(
    run: Path, files: Files, tmp_path: Path, open_client: Callable[..., Any]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    with serving(copy) as server:
        client = open_client(server.address)
        shutil.rmtree(copy)
        client.teach(files)
        assert client.call("POST", "/learn")["learned"]["accuracy"] is not None


def test_drawings_are_learned_by_inner_steps(client: Any, run: Path) -> None:
    for name, strokes in (("ring", RING), ("cross", CROSS)):
        path = f"/classes/{client.add_class(name)}/examples"
        for _ in range(3):
            client.draw(path, strokes)
    # Copies are never separated, so there is no accuracy.
    state = client.call("POST", "/learn")
    assert "copies add no information" in state["warnings"][0]["text"]
    assert state["learned"]["head"] in ("trained", "prototype", "zero")
    [found] = client.draw("/predict", CROSS, status=200)["predictions"]
    images = [draw(strokes, size=16, dark=True) for strokes in (RING,) * 3 + (CROSS,) * 3]
    with warnings.catch_warnings():
        # The examples are too easy or too hard for an untrained run, depending on rounding.
        warnings.simplefilter("ignore", AlfaWarning)
        clf = FewShotClassifier(run, head="auto").fit(images, [1, 1, 1, 0, 0, 0])
    own = dict(zip(("cross", "ring"), clf.predict_proba(images[-1:])[0], strict=True))
    assert probabilities(found) == pytest.approx(own, abs=1e-6)


def test_a_trained_head_is_replaced_for_more_classes(
    linear_run: Path, open_client: Callable[..., Any]
) -> None:
    made = Strokes(num_classes=6, num_examples=3, size=16).images().images.reshape(6, 3, 16, 16)
    with serving(linear_run) as server:
        client = open_client(server.address)
        for number, own in enumerate(made):
            path = f"/classes/{client.add_class(f'class {number}')}/examples"
            client.send(path, *[encode(pixels) for pixels in own])
        learned = client.call("POST", "/learn")["learned"]
    assert learned["head"] in ("prototype", "zero")
    assert "log loss" in learned["head_reason"]


def encode(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def test_unsupported_runs_raise(tmp_path: Path, curves_run: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a run"):
        create_app(tmp_path)
    with pytest.raises(ConfigError, match="was not trained on image classification"):
        create_app(curves_run)
    overrides = ["tasks.size=16", "model.filters=4"]
    run = Run.new(tmp_path / "tpn", compose("strokes", method="tpn", overrides=overrides))
    learner, tasks, _ = run.build("cpu")
    with pytest.raises(ConfigError, match="classifies the queries of a task together"):
        create_app(Run.save(tmp_path / "tpn", learner, tasks).path)


def test_predictions_for_unlabeled_photos_are_a_csv(taught: Any, photos: Files) -> None:
    answer = taught.web.get(f"{taught.path}/export", params={"format": "predictions"})
    assert answer.json()["code"] == "nothing-to-export"
    taught.send("/unlabeled", photos[2][5], name="=new.jpg")
    answer = taught.web.get(f"{taught.path}/export", params={"format": "predictions"})
    [row] = csv.DictReader(io.StringIO(answer.text))
    assert (row["file"], row["label"]) == ("./=new.jpg", "gimel")
    assert float(row["probability of gimel"]) > 1 / 3


def test_the_run_folder_reproduces_the_classifier(taught: Any, tmp_path: Path) -> None:
    answer = taught.web.get(f"{taught.path}/export", params={"format": "run"})
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path)
    assert "alfa adapt model --support examples" in (tmp_path / "README.txt").read_text()
    folders = sorted((tmp_path / "examples").iterdir())
    paths = [path for folder in folders for path in sorted(folder.iterdir())]
    clf = FewShotClassifier(tmp_path / "model").fit(paths, [path.parent.name for path in paths])
    assert clf.classes_.tolist() == ["alef", "bet", "gimel"]
    assert clf.accuracy_.num_photos == 15


def test_the_onnx_file_has_the_current_names_and_writes_no_file(
    taught: Any, photos: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs pip install 'alfa[export]'")
    # The first import creates an empty folder for compiled code.
    importlib.import_module("torch._dynamo")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    first = taught.state()["classes"][0]["id"]
    taught.call("PATCH", f"/classes/{first}", json={"name": "aleph"})
    answer = taught.web.get(f"{taught.path}/export", params={"format": "onnx"})
    assert answer.status_code == 200, answer.text
    session = onnxruntime.InferenceSession(answer.content)
    names = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    assert names == ["aleph", "bet", "gimel"]
    [found] = taught.send("/predict", photos[2][5], status=200)["predictions"]
    pixels = np.asarray(Image.open(io.BytesIO(photos[2][5])))
    shares, _ = session.run(None, {"images": pixels[None]})
    own = dict(zip(names, shares[0].tolist(), strict=True))
    assert probabilities(found) == pytest.approx(own, abs=1e-3)


def test_exports_need_their_content(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, code in (
        ("examples", "nothing-to-export"),
        ("run", "nothing-to-export"),
        ("onnx", "not-learned"),
        ("predictions", "not-learned"),
    ):
        answer = client.web.get(f"{client.path}/export", params={"format": kind})
        assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert client.web.get(f"{client.path}/export", params={"format": "pdf"}).status_code == 422


def test_the_onnx_file_needs_an_extra(taught: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alfa.export._onnx.importlib.util.find_spec", lambda name: None)
    answer = taught.web.get(f"{taught.path}/export", params={"format": "onnx"})
    assert answer.status_code == 409
    assert "pip install 'alfa[export]'" in answer.json()["detail"]


def test_concurrent_sessions_get_their_own_predictions(
    server: Any, run: Path, open_client: Callable[..., Any]
) -> None:
    """Four clients with one session each; all have different characters."""

    def visit(number: int) -> None:
        way = 2 + number % 3
        made = Strokes(num_classes=way, num_examples=4, size=16, seed=number).images().images
        made = made.reshape(way, 4, 16, 16)
        client, names = clients[number], [f"client {number} class {n}" for n in range(way)]
        client.teach([[encode(pixels) for pixels in own[:3]] for own in made], names)
        client.call("POST", "/learn")
        [found] = client.send("/predict", encode(made[0, 3]), status=200)["predictions"]
        clf = FewShotClassifier(run, head="auto", num_folds=5)
        expected = clf.fit(list(made[:, :3].reshape(-1, 16, 16)), np.repeat(np.arange(way), 3))
        shares = expected.predict_proba([made[0, 3]])[0]
        assert probabilities(found) == pytest.approx(dict(zip(names, shares, strict=True)))
        assert [each["name"] for each in client.state()["classes"]] == names

    clients = [open_client(server.address) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(visit, range(4)))
