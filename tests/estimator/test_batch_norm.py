"""User-defined networks with torch's batch norm, inductive and transductive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from alfa import FewShotClassifier
from alfa.errors import AlfaWarning, ConfigError

Characters = tuple[np.ndarray, np.ndarray]
# The runs are untrained.
pytestmark = pytest.mark.filterwarnings("ignore:after 2 steps the support loss")


@pytest.fixture(scope="module")
def own_run(make_run) -> Path:
    return make_run(model={"name": "own"})


@pytest.fixture(scope="module")
def twice_run(make_run) -> Path:
    return make_run(model={"name": "own", "twice": True})


def _loss(clf: FewShotClassifier, images: np.ndarray, labels: np.ndarray) -> float:
    found = clf.predict_log_proba(images)
    return float(-found[np.arange(len(labels)), np.searchsorted(clf.classes_, labels)].mean())


def test_inductive_predictions_use_support_statistics(own_run: Path, five: Characters) -> None:
    images, labels = five
    clf = FewShotClassifier(own_run, num_folds=0).fit(images, labels)
    assert clf.is_inductive
    # On the support set, the result equals the learner's.
    assert _loss(clf, images, labels) == pytest.approx(clf.support_losses_[-1], rel=1e-4)
    assert clf.support_losses_[-1] < clf.support_losses_[0]
    together = clf.predict_proba(images)
    alone = np.concatenate([clf.predict_proba(image[None]) for image in images])
    assert (alone == together).all()
    # Each image is classified independently.
    assert (clf.predict_proba(images[:4]) == together[:4]).all()


def test_transductive_predictions_use_batch_statistics(own_run: Path, five: Characters) -> None:
    images, labels = five
    clf = FewShotClassifier(own_run, transductive=True, num_folds=0).fit(images, labels)
    assert not clf.is_inductive
    assert _loss(clf, images, labels) == pytest.approx(clf.support_losses_[-1], rel=1e-4)
    assert not np.allclose(clf.predict_proba(images[:4]), clf.predict_proba(images)[:4])
    both = clf.accuracies(images[::2], labels[::2])
    assert both["transductive"] == clf.score(images[::2], labels[::2])
    single = clone(clf).set_params(transductive=False).fit(images, labels)
    assert both["inductive"] == single.score(images[::2], labels[::2])
    with pytest.raises(
        ConfigError, match=r"cannot normalize 1 image; predict more .*, or omit `transductive`"
    ):
        clf.predict(images[:1])


def test_a_layer_that_is_used_twice_is_always_transductive(
    twice_run: Path, five: Characters
) -> None:
    images, labels = five
    with pytest.warns(AlfaWarning, match="Own uses its batch norm norm more than once"):
        clf = FewShotClassifier(twice_run, num_folds=0).fit(images, labels)
    assert not clf.is_inductive
    assert _loss(clf, images, labels) == pytest.approx(clf.support_losses_[-1], rel=1e-4)
    assert clf.accuracies(images, labels) == {"transductive": clf.score(images, labels)}
    with pytest.raises(
        ConfigError, match=r"cannot normalize 1 image; predict more images at once\.$"
    ):
        clf.predict(images[:1])


def test_fit_needs_more_than_one_image(own_run: Path, five: Characters) -> None:
    images, labels = five
    clf = FewShotClassifier(own_run)
    with pytest.raises(ConfigError, match=r"cannot normalize 1 image; fit on more images\.$"):
        clf.fit(images[:1], labels[:1])
