"""Optimizers of the outer loop that a configuration names."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alfa.config import compose
from alfa.errors import ConfigError
from alfa.optim import OPTIMIZERS, Adam
from alfa.runs import Run
from alfa.training import train_run


@pytest.fixture
def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(3))]


@pytest.mark.parametrize(
    ("name", "options", "kind", "settings"),
    [
        ("adam", {"learning_rate": 0.2, "beta1": 0.5}, Adam, {"lr": 0.2, "betas": (0.5, 0.999)}),
        ("adamw", {"eps": 0.1}, torch.optim.AdamW, {"lr": 0.001, "eps": 0.1}),
        (
            "sgd",
            {"momentum": 0.9, "nesterov": True},
            torch.optim.SGD,
            {"lr": 0.1, "momentum": 0.9, "nesterov": True},
        ),
    ],
)
def test_a_name_and_options_make_an_optimizer(parameters, name, options, kind, settings) -> None:
    made = OPTIMIZERS.get(name)(**options)(parameters)
    assert type(made) is kind
    assert {key: made.param_groups[0][key] for key in settings} == settings
    assert [p for group in made.param_groups for p in group["params"]] == parameters


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_only_the_chosen_parameters_decay(parameters, name) -> None:
    made = OPTIMIZERS.get(name)(weight_decay=0.3)(parameters, decayed=parameters[:1])
    decays = {id(p): group["weight_decay"] for group in made.param_groups for p in group["params"]}
    assert [decays[id(p)] for p in parameters] == [0.3, 0.0]


def test_an_optimizer_of_a_program_cannot_be_rebuilt(parameters) -> None:
    made = OPTIMIZERS.get("custom")(description="torch.optim.rprop.Rprop")
    with pytest.raises(ConfigError, match=r"\(torch\.optim\.rprop\.Rprop\).* Trainer\.fit\.$"):
        made(parameters)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("schedule", ["constant", "step", "cosine"])
def test_a_stopped_run_resumes_to_the_same_numbers(tmp_path, name, schedule) -> None:
    small = ["outer.validate_every=2", "outer.num_val_tasks=3", "test.num_tasks=3"]
    small += ["model.hidden=[8]", "tasks.num_query=10", "schedule.warmup=2"]
    small += [
        f"optimizer.name={name}",
        "optimizer.learning_rate=0.001",
        f"schedule.name={schedule}",
    ]
    small += {"step": ["schedule.every=2"], "cosine": ["schedule.period=6"]}.get(schedule, [])

    def experiment(num_iterations: int):
        overrides = [*small, f"outer.num_iterations={num_iterations}"]
        return compose("sinusoid", overrides=overrides)

    whole = train_run(Run.new(tmp_path / "whole", experiment(6)))
    train_run(Run.new(tmp_path / "parts", experiment(4)))
    parts = train_run(Run.new(tmp_path / "parts", experiment(6)), resume=True)
    assert parts["test"] == whole["test"]
    assert Run.open(tmp_path / "parts").metrics == Run.open(tmp_path / "whole").metrics
