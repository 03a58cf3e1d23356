"""A network of one's own with torch's batch norm: what is said of one image, and of several."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from alfa import FewShotClassifier
from alfa.errors import AlfaWarning, ConfigError

Characters = tuple[np.ndarray, np.ndarray]
# Runs that were trained for a moment only.
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


def test_images_are_normalised_by_the_support_set(own_run: Path, five: Characters) -> None:
    images, labels = five
    clf = FewShotClassifier(own_run).fit(images, labels)
    assert clf.is_inductive
    # Of the support set itself, the engine says the same.
    assert _loss(clf, images, labels) == pytest.approx(clf.support_losses_[-1], rel=1e-4)
    assert clf.support_losses_[-1] < clf.support_losses_[0]
    together = clf.predict_proba(images)
    alone = np.concatenate([clf.predict_proba(image[None]) for image in images])
    assert (alone == together).all()
    # A part of the support set does not change what is said of it.
    assert (clf.predict_proba(images[:4]) == together[:4]).all()


def test_images_can_be_normalised_together(own_run: Path, five: Characters) -> None:
    images, labels = five
    clf = FewShotClassifier(own_run, transductive=True).fit(images, labels)
    assert not clf.is_inductive
    assert _loss(clf, images, labels) == pytest.approx(clf.support_losses_[-1], rel=1e-4)
    assert not np.allclose(clf.predict_proba(images[:4]), clf.predict_proba(images)[:4])
    both = clf.accuracies(images[::2], labels[::2])
    assert both["transductive"] == clf.score(images[::2], labels[::2])
    single = clone(clf).set_params(transductive=False).fit(images, labels)
    assert both["inductive"] == single.score(images[::2], labels[::2])
    with pytest.raises(ConfigError, match=r"1 image is too few .*, or leave `transductive` out"):
        clf.predict(images[:1])


def test_a_layer_that_is_used_twice_makes_images_depend_on_each_other(
    twice_run: Path, five: Characters
) -> None:
    images, labels = five
    with pytest.warns(AlfaWarning, match="Own uses its batch norm norm more than once"):
        clf = FewShotClassifier(twice_run).fit(images, labels)
    assert not clf.is_inductive
    assert _loss(clf, images, labels) == pytest.approx(clf.support_losses_[-1], rel=1e-4)
    assert clf.accuracies(images, labels) == {"transductive": clf.score(images, labels)}
    with pytest.raises(ConfigError, match=r"1 image is too few .*; predict more at once\.$"):
        clf.predict(images[:1])


def test_a_single_example_is_too_few_to_fit(own_run: Path, five: Characters) -> None:
    images, labels = five
    clf = FewShotClassifier(own_run)
    with pytest.raises(ConfigError, match=r"^1 image is too few .*; fit on more at once\.$"):
        clf.fit(images[:1], labels[:1])
