"""What one person has, without a browser."""

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


def test_somebody_begins_with_two_empty_classes(session: Session) -> None:
    assert names(session) == ["Class 1", "Class 2"]
    assert session.selected == session.classes[0].number
    assert session.missing() == "Give each class a few pictures first."
    with pytest.raises(ConfigError, match="nothing has been learnt yet"):
        session.predict([])


def test_classes_are_added_renamed_and_removed(session: Session) -> None:
    third = session.add_class()
    assert session.selected == third.number
    session.rename(third.number, "  a   new\tname ")
    assert names(session) == ["Class 1", "Class 2", "a new name"]
    session.remove_class(session.classes[0].number)
    # The name of one that is there is not given again.
    session.add_class()
    assert names(session) == ["Class 2", "a new name", "Class 3"]
    with pytest.raises(DataError, match="not there any more"):
        session.rename(999, "x")


def test_the_number_of_classes_has_limits(session: Session) -> None:
    with pytest.raises(ConfigError, match="at least 2 classes"):
        session.remove_class(session.classes[0].number)
    while len(session.classes) < MAX_CLASSES:
        session.add_class()
    with pytest.raises(ConfigError, match=f"there are {MAX_CLASSES} classes already"):
        session.add_class()
    assert len({each.name for each in session.classes}) == MAX_CLASSES


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "needs a name"),
        (" .. ", "needs a name"),
        (None, "needs a name"),
        ("a/b", "cannot have"),
        ("..\\b", "cannot have"),
        ("b.", "a dot at either end"),
        ("a\x00b", "cannot have"),
        ("a\u202eb", "cannot have"),
        ("<b>", "cannot have"),
        ("x" * (MAX_NAME + 1), f"has {MAX_NAME + 1}"),
        ("CLASS 2", "already"),
    ],
)
def test_a_name_that_cannot_be_one_is_refused(session: Session, name: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        session.rename(session.classes[0].number, name)
    assert names(session) == ["Class 1", "Class 2"]


def test_what_is_no_picture_is_refused_and_the_others_are_taken(
    session: Session, pictures: list[list[bytes]]
) -> None:
    good, other = pictures[0][:2]
    files = {"a.png": good, "notes.txt": b"hello", "b.png": good[:60], "c.png": b"", "d.png": other}
    seen = [session.model.receive(name, content) for name, content in files.items()]
    added, refused = session.add_uploads(session.selected, seen)
    assert added == session.num_examples == 2
    assert refused[0] == "“notes.txt” is not an image, or of a format that is not read."
    assert refused[1].startswith("“b.png” is damaged or cut off")
    assert refused[2] == "“c.png” is an empty file."


def test_an_image_bomb_is_refused(model: Model) -> None:
    bomb = model.receive("bomb.pgm", b"P5 100000 100000 255\n")
    assert bomb.pixels is None
    assert "“bomb.pgm” declares more than the 64,000,000 pixels that are allowed" in bomb.problem


def test_the_number_of_pictures_has_limits(session: Session) -> None:
    files = [UploadedImage("x.png", np.zeros((1, 16, 16), np.uint8))] * (MAX_PER_CLASS + 2)
    added, refused = session.add_uploads(session.selected, files)
    assert added == MAX_PER_CLASS
    assert refused == [
        f"“Class 1” has {MAX_PER_CLASS} pictures already, which is as many as a class can have; a "
        "few are enough."
    ]
    while session.num_examples < MAX_IMAGES:
        each = session.add_class()
        session.add_uploads(each.number, files[:MAX_PER_CLASS])
    with pytest.raises(ConfigError, match=f"there are {MAX_IMAGES} pictures already"):
        session.add_example(session.classes[1].number, np.zeros((1, 16, 16), np.uint8))


def test_only_what_the_model_sees_is_kept(taught: Session) -> None:
    [first, *_] = taught.classes[0].examples
    assert first.pixels.shape == (1, 16, 16)
    assert first.pixels.dtype == np.uint8
    assert first.data_url.startswith("data:image/png;base64,")


def test_learning_and_predicting_are_the_classifiers(
    taught: Session, run: Path, drawings: np.ndarray, pictures: list[list[bytes]]
) -> None:
    adapted = taught.learn()
    labels = np.repeat([0, 1, 2], 5)
    clf = FewShotClassifier(run).fit(list(drawings[:, :5].reshape(-1, 40, 40)), labels)
    assert adapted.losses == clf.support_losses_.tolist()
    assert adapted.num_right == round(15 * clf.support_accuracy_)
    assert adapted.classifier.rates_["alpha"].shape == (5, 10)
    new = [("", taught.model.read(files[5])) for files in pictures]
    found = taught.predict(new)
    expected = clf.predict_proba([each[5] for each in drawings])
    for prediction, row in zip(found, expected, strict=True):
        by_name = {name: probability for _, name, probability in prediction.classes}
        assert by_name == dict(zip(("alef", "bet", "gimel"), row.tolist(), strict=True))
        assert [p for _, _, p in prediction.classes] == sorted(row.tolist(), reverse=True)


def test_nothing_is_learnt_from_a_class_without_pictures(taught: Session) -> None:
    taught.add_class()
    assert taught.missing() == "“Class 4” has no pictures yet."
    with pytest.raises(ConfigError, match="“Class 4” has no pictures yet"):
        taught.learn()
    taught.add_class()
    assert taught.missing() == "“Class 4” and “Class 5” have no pictures yet."


def test_what_was_learnt_follows_names_and_goes_with_a_class(taught: Session) -> None:
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


def test_a_new_class_leaves_what_was_learnt(taught: Session) -> None:
    taught.learn()
    new = taught.add_class()
    assert taught.is_stale
    taught.remove_class(new.number)
    assert taught.adapted is not None


def test_people_do_not_mix(
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
    with pytest.raises(ConfigError, match="there are 5 classes already"):
        session.add_class()


def test_a_run_that_cannot_be_served_is_refused(tmp_path: Path, curves_run: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a run"):
        Model.open(tmp_path)
    with pytest.raises(ConfigError, match="was not trained on images of classes"):
        Model.open(curves_run)


def test_a_coloured_model_takes_no_drawings(model: Model) -> None:
    signature = replace(model.signature, input_shape=(3, 16, 16))
    with pytest.raises(DataError, match="not on drawings"):
        replace(model, signature=signature).drawn([[[0, 0], [1, 1]]])
