"""Training with objectives: their parameters, progress, records, and configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from alfa import MLP, SGD, LearnedInit, Learner, Run, Sinusoids, Trainer, mse
from alfa.config import load_experiment, parse_experiment
from alfa.errors import CheckpointError, ConfigError
from alfa.objectives import OBJECTIVES, MultiStep, Objective, QueryLoss, register_objective
from alfa.runs import Checkpoint
from alfa.training import train_run

SMALL = {"validate_every": 5, "num_val_tasks": 4, "num_test_tasks": 5, "ensemble": 2}


@pytest.fixture
def weighted(monkeypatch) -> Iterator[type[Objective]]:
    """Register an objective with a trained weight of the support loss."""
    monkeypatch.setattr(OBJECTIVES, "_parts", dict(OBJECTIVES._parts))

    @register_objective("weighted")
    class Weighted(Objective):
        def __init__(self, *, start: float = 0.0) -> None:
            super().__init__()
            self.log_weight = nn.Parameter(torch.tensor(start))

        def forward(self, learner, episode, *, progress):
            outcome = learner(episode)
            support = learner.loss(outcome.adapted.predict(episode.support_x), episode.support_y)
            weighted = self.log_weight.exp() * support - self.log_weight
            return replace(outcome, objective=outcome.query_losses + weighted)

    return Weighted


def make_trainer(num_iterations: int, objective: Objective | None, **options: Any) -> Trainer:
    model = MLP((1,), 1, hidden=[8], generator=torch.Generator().manual_seed(1))
    init = LearnedInit(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse, num_steps=2)
    settings = {**SMALL, "num_iterations": num_iterations, **options}
    return Trainer(learner, Sinusoids(num_support=5), objective=objective, **settings)


def last_checkpoint(path) -> Checkpoint:
    checkpoint = Run.open(path).load_last()
    assert isinstance(checkpoint, Checkpoint)
    return checkpoint


def test_parameters_are_trained_and_resumed_to_the_same_numbers(
    tmp_path, weighted, tensors
) -> None:
    one = make_trainer(20, weighted(start=0.5))
    whole = one.fit(tmp_path / "whole")
    assert abs(one.objective.log_weight.item() - 0.5) > 0.001
    make_trainer(10, weighted(start=0.5)).fit(tmp_path / "parts")
    other = make_trainer(20, weighted(start=0.5))
    parts = other.fit(tmp_path / "parts", resume=True)
    assert parts["test"] == whole["test"]
    assert Run.open(tmp_path / "parts").metrics == Run.open(tmp_path / "whole").metrics
    assert torch.equal(one.objective.log_weight, other.objective.log_weight)
    saved, again = (tensors(tmp_path / name) for name in ("whole", "parts"))
    assert saved == again
    assert any(key.endswith("log_weight") for key in saved)
    assert whole["num_meta_parameters"] == 1 + sum(p.numel() for p in one.learner.meta_parameters())


def test_an_optimizer_must_train_the_objective_too(weighted) -> None:
    objective = weighted()
    learner = make_trainer(5, None).learner
    optimizer = torch.optim.SGD(learner.meta_parameters(), lr=0.1)
    with pytest.raises(ConfigError, match=r"`optimizer` lacks 1 of the 5 .*objective\.parameters"):
        Trainer(learner, Sinusoids(), objective=objective, optimizer=optimizer)


def test_a_run_records_and_rebuilds_its_objective(tmp_path, weighted) -> None:
    make_trainer(10, weighted(start=0.5)).fit(tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.experiment.objective is not None
    assert run.experiment.objective.model_dump() == {"name": "weighted", "start": 0.5}
    rebuilt = Trainer.from_run(run)
    assert type(rebuilt.objective) is weighted
    with pytest.raises(CheckpointError, match=r"another experiment: objective\.start is 0\.5 and"):
        make_trainer(10, weighted(start=0.1)).fit(tmp_path / "run", resume=True)
    again = Trainer.from_run(Run.new(tmp_path / "again", run.experiment))
    again.learner.load_state_dict(make_trainer(10, None).learner.state_dict())
    assert again.fit(Run.new(tmp_path / "again", run.experiment))["test"] == run.result["test"]


def test_an_objective_that_uses_progress_keeps_its_number_of_iterations(tmp_path) -> None:
    objective = MultiStep(annealed_until=0.5, num_epochs=4)
    make_trainer(10, objective).fit(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"num_iterations = 10, and its objective changes"):
        make_trainer(20, objective).fit(tmp_path / "run", resume=True)
    make_trainer(10, objective).fit(tmp_path / "run", resume=True)
    # Without progress, a run can be extended.
    unchanging = MultiStep(annealed_until=0.0)
    make_trainer(5, unchanging).fit(tmp_path / "other")
    result = make_trainer(10, unchanging).fit(tmp_path / "other", resume=True)
    assert result["num_iterations"] == 10


def test_progress_goes_from_zero_to_one(tmp_path) -> None:
    seen: list[float] = []

    class Recording(QueryLoss):
        def forward(self, learner, episode, *, progress):
            seen.append(progress)
            return super().forward(learner, episode, progress=progress)

    trainer = make_trainer(4, Recording(), memory="store", tasks_at_once=4)
    trainer.objective = None  # an unregistered objective is in use, but cannot be recorded
    trainer.fit(tmp_path / "run")
    assert seen == [0.0, 0.25, 0.5, 0.75]


def test_the_plan_fits_the_memory_of_the_whole_training(tmp_path) -> None:
    """The plan measures an objective at several times of the training."""
    plans = []
    for objective in (QueryLoss(), MultiStep(), MultiStep(annealed_until=0.0)):
        trainer = make_trainer(5, objective)
        messages: list[str] = []
        trainer.fit(
            tmp_path / str(len(plans)),
            on_progress=lambda progress, messages=messages: messages.append(progress.message or ""),
        )
        checkpoint = last_checkpoint(tmp_path / str(len(plans)))
        plans.append(checkpoint.progress["memory"]["needed"])
    assert plans[0] == plans[2] < plans[1]


def test_an_experiment_file_chooses_an_objective(tmp_path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(
        '[tasks]\nname = "sinusoid"\n[model]\nname = "mlp"\nhidden = [4]\n'
        '[objective]\nname = "multi-step"\nannealed_until = 0.5\n'
        "[outer]\nnum_iterations = 4\nvalidate_every = 2\nnum_val_tasks = 2\n"
        "[test]\nnum_tasks = 2\n"
    )
    experiment = load_experiment(path)
    assert experiment.objective is not None
    assert experiment.objective.options["annealed_until"] == 0.5
    assert experiment.objective.options["smallest_weight"] == 0.03
    train_run(Run.new(tmp_path / "run", experiment))
    built = Trainer.from_run(Run.open(tmp_path / "run")).objective
    assert isinstance(built, MultiStep)
    assert built.annealed_until == 0.5


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        (
            {"name": "multi-step", "annealed": 0.5},
            "objective.annealed is not a known key; known: name, annealed_until, smallest_weight, "
            "first_order_until, num_epochs. Did you mean 'annealed_until'?",
        ),
        ({"name": "implicit", "num_cg_steps": 0}, "objective.num_cg_steps is 0, but must be"),
        ({"name": "implicit", "strength": "high"}, "objective.strength is 'high', but must be"),
        ({"name": "reptil"}, "objective.name is 'reptil', but must be one of"),
        ({"strength": 2.0}, "objective"),
    ],
)
def test_faults_of_the_section_are_reported(section, fault) -> None:
    content = {"tasks": {"name": "sinusoid"}, "model": {"name": "mlp"}, "objective": section}
    with pytest.raises(ConfigError) as error:
        parse_experiment(content)
    assert fault in str(error.value)
