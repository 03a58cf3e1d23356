"""Classifiers from runs of methods without inner steps."""

from __future__ import annotations

import numpy as np
import pytest

from alfa.errors import AlfaWarning, ConfigError
from alfa.estimator import FewShotClassifier

HEADS = {
    "prototype-head": {},
    "ridge-head": {},
    "svm-head": {},
    "matching": {"adapt": ["head.weight"]},
    "matching-fce": {"adapt": ["head.support", "head.labels"]},
    "relation": {"adapt": ["head.sums"]},
    "snail": {"adapt": ["head.support"]},
}

pytestmark = pytest.mark.filterwarnings("ignore:the support loss is")


@pytest.fixture
def run_of(make_run):
    """Save an untrained run with an init or a head."""

    def make(name, **options):
        parts = {"init": {"name": name}}
        if name.endswith("-head"):
            parts["init"]["adapt"] = ["head"]
        else:
            parts = {"init": {"name": "task-head", **options}, "head": {"name": name}}
        model = {"name": "conv4", "filters": 4, "num_blocks": 2}
        return make_run(**parts, model=model, inner={"num_steps": 0})

    return make


@pytest.mark.parametrize("name", HEADS)
def test_each_image_is_classified_independently(run_of, characters, name) -> None:
    images, labels = characters
    clf = FewShotClassifier(run_of(name, **HEADS[name])).fit(images, labels)
    assert clf.num_steps_ == 0
    assert clf.support_losses_.shape == (1,)
    assert clf.rates_["alpha"].shape == (0, len(clf.rates_["layers"]))
    assert clf.is_inductive
    together = clf.predict_proba(images)
    assert together.shape == (18, 3)
    alone = np.concatenate([clf.predict_proba(image[None]) for image in images[:3]])
    np.testing.assert_array_equal(alone, together[:3])


def test_a_transductive_head_is_an_error(run_of, characters) -> None:
    run = run_of("label-propagation", adapt=["head.support", "head.labels"])
    with pytest.raises(ConfigError, match=r"LabelPropagation classifies the queries .* `evaluate`"):
        FewShotClassifier(run).fit(*characters)


@pytest.mark.parametrize("head", ["zero", "prototype"])
def test_no_linear_layer_replaces_another_head(run_of, characters, head) -> None:
    clf = FewShotClassifier(run_of("matching", adapt=["head.weight"]), head=head)
    with pytest.raises(ConfigError, match=r"must be 'trained', .* Matching, is not linear; omit"):
        clf.fit(*characters)


def test_more_classes_than_a_head_supports_are_an_error(run_of, characters) -> None:
    images, _ = characters
    clf = FewShotClassifier(run_of("snail", adapt=["head.support"]))
    with pytest.raises(ConfigError, match="has 5 outputs, too few for 6 classes"):
        clf.fit(images, np.arange(18) % 6)


def test_a_warning_does_not_advise_more_steps(run_of) -> None:
    same = np.zeros((6, 16, 16), np.uint8)
    with pytest.warns(AlfaWarning, match=r"^the support loss is .*; try a run that") as told:
        FewShotClassifier(run_of("prototype-head")).fit(same, [0, 1, 2] * 2)
    assert "steps" not in str(told[0].message)
