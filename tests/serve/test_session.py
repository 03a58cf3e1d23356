"""The session of one user, without a browser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alfa import FewShotClassifier
from alfa.errors import CheckpointError, ConfigError, DataError
from alfa.serve import Model
from alfa.serve._limits import MAX_CLASSES, MAX_IMAGES, MAX_NAME, MAX_PER_CLASS
from alfa.serve._model import UploadedImage
from alfa.serve._session import Session


def names(session: Session) -> list[str]:
    return [each.name for each in session.classes]


def test_a_session_starts_with_two_empty_classes(session: Session) -> None:
    assert names(session) == ["Class 1", "Class 2"]
    assert session.selected == session.classes[0].number
    assert session.missing() == "Add a few pictures to each class first."
    with pytest.raises(ConfigError, match="has not learned anything yet"):
        session.predict([])


def test_classes_are_added_renamed_and_removed(session: Session) -> None:
    third = session.add_class()
    assert session.selected == third.number
    session.rename(third.number, "  a   new\tname ")
    assert names(session) == ["Class 1", "Class 2", "a new name"]
    session.remove_class(session.classes[0].number)
    # Default names skip existing names.
    session.add_class()
    assert names(session) == ["Class 2", "a new name", "Class 3"]
    with pytest.raises(DataError, match="no longer exists"):
        session.rename(999, "x")


def test_the_number_of_classes_has_limits(session: Session) -> None:
    with pytest.raises(ConfigError, match="at least 2 classes"):
        session.remove_class(session.classes[0].number)
    while len(session.classes) < MAX_CLASSES:
        session.add_class()
    with pytest.raises(ConfigError, match=f"supports at most {MAX_CLASSES} classes"):
        session.add_class()
    assert len({each.name for each in session.classes}) == MAX_CLASSES


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "needs a name"),
        (" .. ", "needs a name"),
        (None, "needs a name"),
        ("a/b", "must not contain"),
        ("..\\b", "must not contain"),
        ("b.", "end with a dot"),
        ("a\x00b", "must not contain"),
        ("a\u202eb", "must not contain"),
        ("<b>", "must not contain"),
        ("x" * (MAX_NAME + 1), f"got {MAX_NAME + 1}"),
        ("CLASS 2", "already exists"),
    ],
)
def test_invalid_names_raise(session: Session, name: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        session.rename(session.classes[0].number, name)
    assert names(session) == ["Class 1", "Class 2"]


def test_invalid_pictures_do_not_affect_others(
    session: Session, pictures: list[list[bytes]]
) -> None:
    good, other = pictures[0][:2]
    files = {"a.png": good, "notes.txt": b"hello", "b.png": good[:60], "c.png": b"", "d.png": other}
    seen = [session.model.receive(name, content) for name, content in files.items()]
    added, refused = session.add_uploads(session.selected, seen)
    assert added == session.num_examples == 2
    assert refused[0] == "“notes.txt” is not an image, or its format is not supported."
    assert refused[1].startswith("“b.png” is damaged or truncated")
    assert refused[2] == "“c.png” is an empty file."


def test_image_bombs_are_refused(model: Model) -> None:
    bomb = model.receive("bomb.pgm", b"P5 100000 100000 255\n")
    assert bomb.pixels is None
    assert "“bomb.pgm” declares too many pixels (the limit is 64,000,000)" in bomb.problem


def test_the_number_of_pictures_has_limits(session: Session) -> None:
    files = [UploadedImage("x.png", np.zeros((1, 16, 16), np.uint8))] * (MAX_PER_CLASS + 2)
    added, refused = session.add_uploads(session.selected, files)
    assert added == MAX_PER_CLASS
    assert refused == [f"“Class 1” already has {MAX_PER_CLASS} pictures, the maximum per class."]
    while session.num_examples < MAX_IMAGES:
        each = session.add_class()
        session.add_uploads(each.number, files[:MAX_PER_CLASS])
    with pytest.raises(ConfigError, match=f"there are already {MAX_IMAGES} pictures"):
        session.add_example(session.classes[1].number, np.zeros((1, 16, 16), np.uint8))


def test_only_the_model_input_is_kept(taught: Session) -> None:
    [first, *_] = taught.classes[0].examples
    assert first.pixels.shape == (1, 16, 16)
    assert first.pixels.dtype == np.uint8
    assert first.data_url.startswith("data:image/png;base64,")


def test_predictions_match_the_classifier(
    taught: Session, run: Path, drawings: np.ndarray, pictures: list[list[bytes]]
) -> None:
    adapted = taught.learn()
    labels = np.repeat([0, 1, 2], 5)
    clf = FewShotClassifier(run).fit(list(drawings[:, :5].reshape(-1, 40, 40)), labels)
    assert adapted.classifier.support_losses_.tolist() == clf.support_losses_.tolist()
    assert adapted.classifier.accuracy_ == clf.accuracy_
    assert adapted.classifier.rates_["alpha"].shape == (5, 10)
    new = [("", taught.model.read(files[5])) for files in pictures]
    found = taught.predict(new)
    expected = clf.predict_proba([each[5] for each in drawings])
    for prediction, row in zip(found, expected, strict=True):
        by_name = {name: probability for _, name, probability in prediction.classes}
        assert by_name == dict(zip(("alef", "bet", "gimel"), row.tolist(), strict=True))
        assert [p for _, _, p in prediction.classes] == sorted(row.tolist(), reverse=True)


def test_learning_needs_pictures_of_every_class(taught: Session) -> None:
    taught.add_class()
    assert taught.missing() == "“Class 4” has no pictures yet."
    with pytest.raises(ConfigError, match="“Class 4” has no pictures yet"):
        taught.learn()
    taught.add_class()
    assert taught.missing() == "“Class 4” and “Class 5” have no pictures yet."


def test_adapted_model_follows_renamed_and_removed_classes(taught: Session) -> None:
    taught.learn()
    assert not taught.is_stale
    pixels = taught.classes[0].examples[0].pixels
    taught.rename(taught.classes[0].number, "aleph")
    assert not taught.is_stale
    assert "aleph" in [name for _, name, _ in taught.predict([("", pixels)])[0].classes]
    assert taught.adapted_names() == ["aleph", "bet", "gimel"]
    taught.remove_example(taught.classes[1].examples[0].number)
    assert taught.is_stale
    assert taught.adapted is not None
    taught.remove_class(taught.classes[2].number)
    assert taught.adapted is None


def test_a_new_class_keeps_the_adapted_model(taught: Session) -> None:
    taught.learn()
    new = taught.add_class()
    assert taught.is_stale
    taught.remove_class(new.number)
    assert taught.adapted is not None


def test_sessions_are_independent(
    make_session: Callable[[], Session],
    seen: Callable[..., list[UploadedImage]],
    pictures: list[list[bytes]],
) -> None:
    one, other = make_session(), make_session()
    one.rename(one.classes[0].number, "mine")
    one.add_uploads(one.selected, seen(pictures[0][0]))
    assert names(other) == ["Class 1", "Class 2"]
    assert other.num_examples == 0


def test_a_trained_last_layer_limits_the_classes(linear_run: Path) -> None:
    model = Model.open(linear_run)
    assert model.max_classes == 5
    session = Session(model)
    for _ in range(3):
        session.add_class()
    with pytest.raises(ConfigError, match="supports at most 5 classes"):
        session.add_class()


def test_unsupported_runs_raise(tmp_path: Path, curves_run: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a run"):
        Model.open(tmp_path)
    with pytest.raises(ConfigError, match="was not trained on image classification"):
        Model.open(curves_run)


def test_color_models_reject_drawings(model: Model) -> None:
    in_color = replace(model.image_format, shape=(3, 16, 16))
    with pytest.raises(DataError, match="does not support drawings"):
        replace(model, image_format=in_color).drawn([[[0, 0], [1, 1]]])
