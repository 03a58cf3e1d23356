"""An exported model gives the probabilities of its classifier without torch."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image

import alfa
from alfa import FewShotClassifier
from alfa.errors import AlfaError, ConfigError, DataError
from alfa.export import Exported, _onnx, export_onnx
from alfa.models import Bound


@pytest.fixture(scope="module")
def session(exported: Exported) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(exported.path)


def test_export_describes_the_file(exported: Exported) -> None:
    assert exported.classes == ("alef", "bet", "gimel")
    assert exported.input_shape == (1, 16, 16)
    assert exported.path.read_bytes() == exported.content
    assert exported.num_checked == 18 + 24
    assert 0 < exported.max_difference < 1e-5


def test_probabilities_match_the_classifier(session, classifier, characters) -> None:
    images, _ = characters
    found, familiarity = session.run(None, {"images": images[..., None]})
    assert found.dtype == np.float32
    np.testing.assert_allclose(familiarity, classifier.assess(images).familiarity, atol=1e-5)
    np.testing.assert_allclose(found, classifier.predict_proba(images), atol=1e-5)
    # Color images of another size are resized to the same pixels.
    large = np.random.default_rng(0).integers(0, 256, (3, 50, 33, 3), dtype=np.uint8)
    (found,) = session.run(["probabilities"], {"images": large})
    np.testing.assert_allclose(found, classifier.predict_proba(list(large)), atol=1e-5)


def test_the_file_contains_metadata(exported: Exported, session) -> None:
    model = onnx.load(exported.path)
    assert [(i.domain, i.version) for i in model.opset_import] == [("", exported.opset)]
    (images,), (probabilities, familiarity) = session.get_inputs(), session.get_outputs()
    assert (images.name, images.type) == ("images", "tensor(uint8)")
    assert images.shape == ["batch", "height", "width", "channel"]
    assert (probabilities.name, probabilities.type) == ("probabilities", "tensor(float)")
    assert probabilities.shape == ["batch", 3]
    assert (familiarity.name, familiarity.shape) == ("familiarity", ["batch"])
    assert model.producer_name == "alfa"
    told = session.get_modelmeta().custom_metadata_map
    assert {key: json.loads(told[key]) for key in ("classes", "input_shape")} == {
        "classes": ["alef", "bet", "gimel"],
        "input_shape": [1, 16, 16],
    }
    assert told["alfa_version"] == alfa.__version__


def test_the_file_contains_no_paths(exported: Exported) -> None:
    content = exported.path.read_bytes()
    for secret in (b"site-packages", b".py", str(Path.cwd()).encode(), b"stack_trace"):
        assert secret not in content


def test_export_is_silent(export_and_noise) -> None:
    assert export_and_noise[1] == []
    assert logging.root.manager.disable == logging.NOTSET


def test_export_does_not_change_the_classifier(exported: Exported, classifier, characters) -> None:
    fresh = FewShotClassifier(classifier.run).fit(*characters)
    assert (classifier.predict_proba(characters[0]) == fresh.predict_proba(characters[0])).all()


def test_double_precision_custom_modules(classifier, characters, tmp_path: Path) -> None:
    """Export a user-defined module that has more outputs than classes."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(), torch.nn.Linear(256, 5))
    other = FewShotClassifier(classifier.run).fit(characters[0], np.repeat([3, 1, 2], 6))
    own = {name: value.double() for name, value in module.named_parameters()}
    other.model_ = Bound(module.double(), own)
    # The embedding of a module without a sequence of layers is its input.
    other.class_means_ = torch.nn.functional.normalize(torch.rand(3, 256), dim=1)
    exported = export_onnx(other, tmp_path / "other.onnx")
    assert exported.classes == (1, 2, 3)
    assert exported.max_difference < 1e-5


def test_errors_of_torch_are_explained(
    classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no such operation\nand much more")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(AlfaError) as caught:
        export_onnx(classifier, tmp_path / "model.onnx")
    assert str(caught.value) == (
        "torch cannot export the model to ONNX (no such operation); use a model from alfa."
    )
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def quick(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reuse the exported model instead of exporting for several seconds."""
    monkeypatch.setattr(_onnx, "_build", lambda *_: onnx.load(exported.path))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("fault", "told"), [(0.25, "0.25"), (np.nan, "nan")])
def test_a_model_with_other_probabilities_is_not_written(
    classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: float, told: str
) -> None:
    true = FewShotClassifier._probabilities
    monkeypatch.setattr(FewShotClassifier, "_probabilities", lambda self, x: true(self, x) + fault)
    path = tmp_path / "model.onnx"
    with pytest.raises(AlfaError) as caught:
        export_onnx(classifier, path)
    assert str(caught.value) == (
        f"probabilities of the exported model and of torch differ by up to {told}, more than "
        f"{1e-4 / classifier.temperature_:.2g}, so no file was written; try another version of "
        "torch, onnxscript, or onnxruntime."
    )
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of images in every call of the exported model."""
    counts: list[int] = []

    class Spy(onnxruntime.InferenceSession):
        def run(self, names, given):
            counts.append(len(given["images"]))
            return super().run(names, given)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Spy)
    return counts


@pytest.mark.usefixtures("quick")
def test_one_image_is_in_memory_at_a_time(classifier, characters, tmp_path, runs) -> None:
    def images():
        for number in range(3):
            # Six random batches, and all previous images.
            assert len(runs) == 6 + number
            yield characters[0][number][..., None]

    assert export_onnx(classifier, tmp_path / "model.onnx", check_on=images()).num_checked == 27


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("image", "told"),
    [
        (np.zeros((8, 8), np.uint8), r"uint8 \[8, 8\]"),
        (np.zeros((8, 8, 4), np.uint8), r"uint8 \[8, 8, 4\]"),
        (np.zeros((8, 8, 1)), r"float64 \[8, 8, 1\]"),
    ],
)
def test_invalid_images_to_check_on_raise(classifier, tmp_path, image, told) -> None:
    with pytest.raises(DataError, match=rf"`check_on` must contain .*, got {told}\."):
        export_onnx(classifier, tmp_path / "model.onnx", check_on=[image])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_images_to_check_on_may_be_files_or_pil_images(classifier, characters, tmp_path) -> None:
    picture = Image.fromarray(characters[0][0])
    picture.save(tmp_path / "a.png")
    images = [tmp_path / "a.png", str(tmp_path / "a.png"), picture]
    assert export_onnx(classifier, tmp_path / "m.onnx", check_on=images).num_checked == 27
    for image, told in (
        (tmp_path / "none.png", r"none\.png "),
        ([[1]], "`check_on` must contain file names, .*, got list"),
    ):
        with pytest.raises(DataError, match=told):
            export_onnx(classifier, tmp_path / "n.onnx", check_on=[image])
    assert not (tmp_path / "n.onnx").exists()


def _fail(*_: object, **__: object) -> None:
    raise RuntimeError("no such thing\nand much more")


def test_invalid_onnx_is_explained(
    exported: Exported, classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = r"torch exported an invalid ONNX model \(.+\); try another version of"
    # An exported model has no input `levels`.
    monkeypatch.setattr(_onnx, "_export_network", lambda *_: onnx.load(exported.path))
    with pytest.raises(AlfaError, match=told):
        export_onnx(classifier, tmp_path / "model.onnx")
    monkeypatch.setattr(onnx.compose, "merge_models", lambda _, core, **__: core)
    monkeypatch.setattr(onnx.checker, "check_model", _fail)
    with pytest.raises(AlfaError, match=told):
        export_onnx(classifier, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_errors_of_onnxruntime_are_explained(
    classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs
) -> None:
    told = r"onnxruntime cannot run the exported model \(no such thing\); try another version of"
    monkeypatch.setattr(onnxruntime.InferenceSession, "run", _fail)
    with pytest.raises(AlfaError, match=told):
        export_onnx(classifier, tmp_path / "model.onnx")
    monkeypatch.setattr(onnxruntime, "InferenceSession", _fail)
    with pytest.raises(AlfaError, match=told):
        export_onnx(classifier, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_transductive_classifiers_cannot_be_exported(classifier, characters, tmp_path) -> None:
    together = FewShotClassifier(classifier.run, transductive=True).fit(*characters)
    with pytest.raises(
        ConfigError, match=r"transductive classifier cannot be exported; .* transductive=False"
    ):
        export_onnx(together, tmp_path / "model.onnx")


def test_labels_must_be_strings_or_numbers(classifier, tmp_path: Path) -> None:
    clf = copy.copy(classifier)
    clf.classes_ = np.array([b"a", b"b", b"c"])
    with pytest.raises(ConfigError, match=r"labels must be strings or numbers .*, got bytes"):
        export_onnx(clf, tmp_path / "model.onnx")


def test_missing_packages_are_named(
    classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = _onnx.importlib.util.find_spec
    for missing, told in (
        (["onnxscript"], "needs onnxscript"),
        (["onnx", "onnxruntime"], "needs onnx and onnxruntime"),
    ):
        monkeypatch.setattr(
            _onnx.importlib.util,
            "find_spec",
            lambda name, gone=missing: None if name in gone else find(name),
        )
        with pytest.raises(ConfigError) as caught:
            export_onnx(classifier, tmp_path / "model.onnx")
        assert str(caught.value) == f"the export {told}; run `pip install 'alfa[export]'`."
