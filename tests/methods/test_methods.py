"""Named methods."""

from __future__ import annotations

import re

import pytest

from alfa.build import build_learner, build_tasks
from alfa.config import compose
from alfa.errors import ConfigError
from alfa.inits import INITS
from alfa.methods import METHODS, get_method
from alfa.models import HEADS


def test_the_methods_of_the_paper_and_of_meta_dataset_are_known() -> None:
    rows = ["random", "alfa+random", "maml", "alfa+maml", "maml+l2f", "alfa+maml+l2f"]
    assert {*rows, "proto-maml", "alfa+proto-maml"} <= set(METHODS)
    assert all(name == method.name for name, method in METHODS.items())


def test_every_method_has_a_title_and_a_reference() -> None:
    assert all(re.search(r" 20\d\d\.$", method.reference) for method in METHODS.values())
    assert len({method.title for method in METHODS.values()}) == len(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_built_from_its_recipe(name: str, spots) -> None:
    small = ["tasks.size=none", "tasks.way=3", "tasks.num_query=2", "model.filters=4"]
    overrides = [*small, "model.num_blocks=1", "model.num_pools=1", "tasks.dataset=spots"]
    experiment = compose("strokes", method=name, overrides=overrides)
    method = get_method(name)
    assert method.init.items() <= {"name": experiment.init.name, **experiment.init.options}.items()
    assert method.rule.items() <= {"name": experiment.rule.name, **experiment.rule.options}.items()
    learner = build_learner(experiment, build_tasks(experiment))
    innermost = INITS.get(method.init.get("base", method.init)["name"])
    part = innermost if experiment.head is None else HEADS.get(experiment.head.name)
    assert learner.init.variable_way == part.variable_way


@pytest.mark.parametrize("name", METHODS)
def test_the_settings_of_a_recipe_replace_those_of_the_dataset(name: str) -> None:
    experiment, method = compose("strokes", method=name), get_method(name)
    for section, values in method.settings.items():
        assert values.items() <= getattr(experiment, section).model_dump().items()
    for section, part in method.parts.items():
        chosen = getattr(experiment, section)
        values = chosen.as_dict() if section == "pretraining" else chosen.model_dump()
        assert part.items() <= values.items()


def test_a_recipe_may_change_the_options_of_one_backbone() -> None:
    small, large = (
        compose("strokes", method="relation", backbone=name) for name in ("conv4", "resnet12-wide")
    )
    assert small.model.options["num_pools"] == 2
    assert "num_pools" not in large.model.options
    overrides = ["model.num_pools=3"]
    chosen = compose("strokes", method="relation", overrides=overrides)
    assert chosen.model.options["num_pools"] == 3


def test_an_unknown_method_is_an_error_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"`method` is 'mamal', which .* mean 'maml'\?$"):
        get_method("mamal")
