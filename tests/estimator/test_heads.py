"""The last layer of the classifier: trained, or new for each task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alfa import FewShotClassifier
from alfa.data import Strokes
from alfa.errors import ConfigError
from alfa.estimator._heads import load_learners
from alfa.inits import PrototypeHead, ZeroHead
from alfa.learner import Learner
from alfa.runs import Run

RULE = {"name": "alfa", "per_parameter_decay": True}
ATTENUATED: dict[str, Any] = {"name": "attenuated", "base": {"name": "learned"}}


def load(run: Path, *, head: str, num_classes: int = 7) -> Learner:
    [learner] = load_learners(
        Run.open(run), checkpoint="best", head=head, num_classes=num_classes, device="cpu"
    )
    return learner


def test_a_trained_head_has_a_fixed_number_of_classes(linear_run: Path) -> None:
    images = Strokes(num_classes=7, num_examples=2, size=16).images().images[:, 0]
    labels = np.arange(14) // 2
    told = (
        r"has 5 outputs, too few for 7 classes; use head='zero' \(--head zero\) for ALFA, or "
        r"head='prototype'"
    )
    with pytest.raises(ConfigError, match=told):
        FewShotClassifier(linear_run).fit(images, labels)
    few = FewShotClassifier(linear_run).fit(images[:6], labels[:6])
    assert few.predict_proba(images).shape == (14, 3)
    for head in ("prototype", "zero"):
        many = FewShotClassifier(linear_run, head=head).fit(images, labels)
        assert many.predict_proba(images).shape == (14, 7)


def test_a_head_inside_another_init_takes_any_number_of_classes(make_run) -> None:
    run = make_run(init={"name": "attenuated", "base": {"name": "prototype-head"}})
    images = Strokes(num_classes=7, num_examples=2, size=16).images().images[:, 0]
    clf = FewShotClassifier(run).fit(images, np.arange(14) // 2)
    assert clf.predict_proba(images).shape == (14, 7)


def test_a_replaced_head_keeps_its_layer_and_the_adapted_layers(make_run) -> None:
    run = make_run(init={"name": "prototype-head", "head": "linear", "adapt": ["linear.*"]})
    init = load(run, head="zero").init
    assert isinstance(init, ZeroHead)
    assert init.head == "linear"
    assert list(init.layers) == ["linear.weight", "linear.bias"]
    assert isinstance(load(run, head="prototype").init, PrototypeHead)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (
            {"init": {"name": "fixed"}},
            r"init, FixedInit, .*omit `head`, or train a run with init\.name=",
        ),
        (
            {"init": ATTENUATED},
            r"init, Attenuated, .*omit `head`, or train a run with init\.base\.name=",
        ),
        (
            {"init": {"name": "attenuated", "base": {"name": "prototype-head"}}},
            r"`head` must be 'trained', got 'zero', .* init, Attenuated, .*; omit `head`\.$",
        ),
        ({"rule": RULE}, r"rule, ALFA, trained values for each weight .* and a rule without"),
        ({"rule": {"name": "meta-sgd"}}, r"rule, MetaSGD, trained values for each weight"),
    ],
)
def test_a_head_that_cannot_be_replaced(make_run, parts: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load(make_run(**parts), head="zero")


@pytest.mark.parametrize(
    ("parts", "option"),
    [
        ({"init": ATTENUATED}, "base.name"),
        ({"rule": RULE}, "name"),
        ({"rule": {"name": "meta-curvature"}}, "name"),
    ],
)
def test_advice_on_too_many_classes_can_be_followed(
    make_run, parts: dict[str, Any], option: str
) -> None:
    told = rf"too few for 7 classes; train a run with init\.{option}=prototype-head"
    with pytest.raises(ConfigError, match=told):
        load(make_run(**parts), head="trained")
