"""Build learners with the user's parts, and reject parts that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor, nn

from alfa.build._build import build_learner, build_model, build_tasks
from alfa.config import Experiment, parse_experiment, to_dict
from alfa.data import Signature
from alfa.errors import ConfigError
from alfa.models import MODELS, register_model
from alfa.runs import Run
from alfa.training import train_run

CURVES = Signature((1,), 1, "mse")


class _Steps(nn.Module):
    """A model that applies its layer `num_steps` times."""

    def __init__(
        self, input_shape: tuple[int, ...], num_outputs: int, *, num_steps: int = 3
    ) -> None:
        super().__init__()
        self.num_steps = num_steps
        self.linear = nn.Linear(input_shape[0], num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.num_steps):
            x = self.linear(x)
        return x


class _Weights(_Steps):
    def __init__(
        self, input_shape: tuple[int, ...], num_outputs: int, *, weights: str = "none"
    ) -> None:
        super().__init__(input_shape, num_outputs)


class _Frozen(_Steps):
    def __init__(self, input_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__(input_shape, num_outputs, num_steps=1)
        self.requires_grad_(False)


class _Counting(_Steps):
    def get_extra_state(self) -> dict[str, int]:
        return {"count": 1}

    def set_extra_state(self, state: dict[str, int]) -> None:
        pass


@pytest.fixture(autouse=True)
def _own_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODELS, "_parts", dict(MODELS._parts))
    for name, model in (
        ("steps", _Steps),
        ("weights", _Weights),
        ("frozen", _Frozen),
        ("counting", _Counting),
    ):
        register_model(name)(model)


def _experiment(model: dict[str, Any], **sections: Any) -> Experiment:
    small = {"num_iterations": 2, "validate_every": 1, "num_val_tasks": 2, "num_tasks": 1}
    content = {"tasks": {"name": "sinusoid"}, "model": model, "outer": small, **sections}
    return parse_experiment({**content, "test": {"num_tasks": 2}})


def test_a_models_own_number_of_steps_is_not_that_of_the_inner_loop() -> None:
    experiment = _experiment({"name": "steps", "num_steps": 2}, inner={"num_steps": 4})
    assert to_dict(experiment)["model"]["num_steps"] == 2
    assert build_learner(experiment, CURVES).model.num_steps == 2
    assert build_model(experiment, (1,), 1).num_steps == 2
    assert build_learner(_experiment({"name": "steps"}), CURVES).model.num_steps == 3


def test_an_option_that_every_model_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="model 'weights' has the option weights, but"):
        _experiment({"name": "weights"})


def test_tasks_that_differ_in_their_examples_need_no_head_of_their_own() -> None:
    experiment = _experiment({"name": "mlp"})
    build_learner(experiment, Signature((1,), 1, "mse", varies=True))
    with pytest.raises(ConfigError, match="differ in their number of classes"):
        build_learner(experiment, Signature((1,), 5, "cross_entropy", varies=True))


def test_training_with_more_classes_needs_a_head_of_their_own() -> None:
    content = {
        "tasks": {"name": "images", "size": 16, "train_way": 7},
        "model": {"name": "conv4", "filters": 2},
    }
    signature = Signature((1, 16, 16), 5, "cross_entropy")
    heads = parse_experiment({**content, "init": {"name": "prototype-head"}})
    assert build_learner(heads, signature).init.variable_way
    with pytest.raises(ConfigError, match=r"\(tasks.train_way is 7, tasks.way 5\); use .*-head"):
        build_learner(parse_experiment(content), signature)
    decays = {"rule": {"name": "alfa", "per_parameter_decay": True}}
    experiment = parse_experiment({**content, **decays, "init": {"name": "prototype-head"}})
    with pytest.raises(ConfigError, match=r"leave out rule\.per_parameter_decay"):
        build_learner(experiment, signature)


def test_what_is_frozen_is_not_trained(tmp_path) -> None:
    result = train_run(Run.new(tmp_path / "sgd", _experiment({"name": "frozen"})))
    assert result["num_meta_parameters"] == 0
    alfa = _experiment({"name": "frozen"}, rule={"name": "alfa"})
    rule = build_learner(alfa, CURVES).rule
    result = train_run(Run.new(tmp_path / "alfa", alfa))
    assert result["num_meta_parameters"] == sum(p.numel() for p in rule.parameters())
    again = train_run(Run.new(tmp_path / "alfa", alfa), resume=True)
    assert again["test"] == result["test"]


def test_a_state_that_no_checkpoint_can_hold_is_a_sentence(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"model\._extra_state, a dict, but a checkpoint holds"):
        train_run(Run.new(tmp_path / "run", _experiment({"name": "counting"})))


def test_zero_inner_steps_need_a_rule_without_trained_parameters() -> None:
    content = {
        "tasks": {"name": "images", "dataset": "strokes", "num_query": 2},
        "model": {"name": "conv4", "filters": 4},
        "init": {"name": "prototype-head", "adapt": ["head"]},
        "inner": {"num_steps": 0},
    }
    experiment = parse_experiment(content)
    tasks = build_tasks(experiment)
    learner = build_learner(experiment, tasks)
    assert learner(tasks.episode(0, num_tasks=1)).adapted.rates == ()
    with pytest.raises(ConfigError, match=r"inner.num_steps is 0, so the rule 'learned'"):
        build_learner(parse_experiment({**content, "rule": {"name": "learned"}}), tasks)


def test_a_frozen_model_trains_only_its_head() -> None:
    content = {
        "tasks": {"name": "images", "dataset": "strokes", "num_query": 2},
        "model": {"name": "conv4", "filters": 4, "frozen": True},
    }
    experiment = parse_experiment(content)
    learner = build_learner(experiment, build_tasks(experiment))
    trained = [n for n, p in learner.model.named_parameters() if p.requires_grad]
    assert trained == ["linear.weight", "linear.bias"]
    assert list(learner.init.layers) == trained
    with pytest.raises(ConfigError, match=r"model.frozen must be true or false, got 'yes'"):
        parse_experiment({**content, "model": {"name": "conv4", "frozen": "yes"}})
