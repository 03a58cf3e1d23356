"""Training from objects, without a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

import alfa
from alfa import ALFA, MLP, SGD, FixedInit, LearnedInit, Learner, Run, Sinusoids, Trainer, mse
from alfa.errors import AlfaWarning, CheckpointError, ConfigError
from alfa.models import Model
from alfa.runs import Checkpoint

SMALL = {"validate_every": 5, "num_val_tasks": 4, "num_test_tasks": 5, "ensemble": 2}


def make_learner() -> Learner:
    model = MLP((1,), 1, hidden=[8], generator=torch.Generator().manual_seed(1))
    init = LearnedInit(model)
    rule = ALFA(init.layers, num_steps=2, generator=torch.Generator().manual_seed(2))
    return Learner(model, init=init, rule=rule, loss=mse, num_steps=2)


def make_trainer(
    num_iterations: int, optimizer: Any = None, scheduler: Any = None, **options: Any
) -> Trainer:
    learner = make_learner()
    made = None if optimizer is None else optimizer(learner.meta_parameters())
    schedule = None if scheduler is None else scheduler(made)
    tasks = Sinusoids(num_support=5)
    settings = {**SMALL, **options, "num_iterations": num_iterations}
    return Trainer(learner, tasks, optimizer=made, scheduler=schedule, **settings)


@pytest.mark.parametrize(
    ("optimizer", "scheduler"),
    [
        (None, None),
        (lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9), None),
        (torch.optim.RMSprop, lambda o: lr_scheduler.CosineAnnealingLR(o, 20)),
        (torch.optim.NAdam, lambda o: lr_scheduler.OneCycleLR(o, 1e-3, total_steps=40)),
        (torch.optim.AdamW, lambda o: lr_scheduler.StepLR(o, 3, gamma=0.5)),
    ],
    ids=["default", "sgd", "rmsprop+cosine", "nadam+onecycle", "adamw+step"],
)
def test_any_optimizer_and_scheduler_resume_to_the_same_numbers(
    tmp_path, optimizer, scheduler
) -> None:
    whole = make_trainer(20, optimizer, scheduler).fit(tmp_path / "whole")
    make_trainer(10, optimizer, scheduler).fit(tmp_path / "parts")
    parts = make_trainer(20, optimizer, scheduler).fit(tmp_path / "parts", resume=True)
    assert parts["test"] == whole["test"]
    assert parts["ensemble"] == whole["ensemble"]
    assert Run.open(tmp_path / "parts").metrics == Run.open(tmp_path / "whole").metrics


def test_objects_and_their_configuration_train_to_the_same_numbers(tmp_path) -> None:
    found = make_trainer(5, seed=3).fit(tmp_path / "objects")
    run = Run.open(tmp_path / "objects")
    again = Trainer.from_run(Run.new(tmp_path / "config", run.experiment))
    # The configuration draws other initial weights; load the learner's.
    again.learner.load_state_dict(make_learner().state_dict())
    assert again.fit(Run.new(tmp_path / "config", run.experiment))["test"] == found["test"]


def test_an_init_that_is_not_trained_is_tested(tmp_path) -> None:
    model = MLP((1,), 1, hidden=[8])
    init = FixedInit(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse)
    result = Trainer(learner, Sinusoids(), num_iterations=5, **SMALL).fit(tmp_path / "run")
    assert (result["num_iterations"], result["num_meta_parameters"]) == (0, 0)


def test_a_run_of_another_optimizer_is_not_resumed(tmp_path) -> None:
    make_trainer(5).fit(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"another experiment: optimizer\.name is 'adam' and"):
        make_trainer(10, torch.optim.RMSprop).fit(tmp_path / "run", resume=True)


def test_a_configuration_cannot_resume_a_program(tmp_path) -> None:
    make_trainer(5, torch.optim.RMSprop).fit(tmp_path / "run")
    with pytest.raises(ConfigError, match="with its own optimizer"):
        Trainer.from_run(Run.open(tmp_path / "run"))


def test_an_optimizer_must_train_everything() -> None:
    learner = make_learner()
    optimizer = torch.optim.SGD(learner.model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match=r"`optimizer` lacks \d+ of the \d+ meta-"):
        Trainer(learner, Sinusoids(), optimizer=optimizer)


def test_schedulers_that_a_checkpoint_cannot_restore_are_refused() -> None:
    learner = make_learner()
    optimizer = torch.optim.SGD(learner.meta_parameters(), lr=0.1)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(ConfigError, match="ReduceLROnPlateau, which needs a metric"):
        Trainer(learner, Sinusoids(), optimizer=optimizer, scheduler=plateau)

    class Opaque(lr_scheduler.ConstantLR):
        def state_dict(self) -> dict[str, Any]:
            return {"function": print}

    with pytest.raises(ConfigError, match="a state that a checkpoint cannot store"):
        Trainer(learner, Sinusoids(), optimizer=optimizer, scheduler=Opaque(optimizer))
    with pytest.raises(ConfigError, match="`scheduler` needs its `optimizer`"):
        Trainer(make_learner(), Sinusoids(), scheduler=lr_scheduler.ConstantLR(optimizer))


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="`device` is 'cuda:99'"):
        Trainer(make_learner(), Sinusoids(), device="cuda:99")


def test_parts_of_the_main_program_are_warned_about(tmp_path, monkeypatch) -> None:
    learner = make_learner()
    monkeypatch.setattr(MLP, "__module__", "__main__")
    with pytest.warns(
        AlfaWarning, match="the main program defines a part of this run, so no other"
    ):
        Run.save(tmp_path / "run", learner, Sinusoids())


def test_a_run_with_parts_of_a_module_names_it(tmp_path, monkeypatch) -> None:
    (tmp_path / "my_part.py").write_text(
        "from alfa import MLP, register_model\n"
        "@register_model('my-mlp')\n"
        "class MyMLP(MLP):\n"
        "    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import my_part  # type: ignore[import-not-found]

    model: Model = my_part.MyMLP((1,), 1, hidden=[4])
    init = LearnedInit(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse)
    run = Run.save(tmp_path / "run", learner, Sinusoids())
    assert Run.open(run.path).experiment.plugins == ("my_part",)
    assert type(Run.open(run.path).learner().model) is my_part.MyMLP


def test_a_result_can_be_opened_by_the_estimator(tmp_path: Path) -> None:
    make_trainer(5).fit(tmp_path / "run")
    x = torch.linspace(-1, 1, 10).unsqueeze(1).numpy()
    regressor = alfa.FewShotRegressor(tmp_path / "run").fit(x, x[:, 0])
    assert regressor.predict(x).shape == (10,)


def test_a_checkpoint_of_another_optimizer_is_damaged(tmp_path) -> None:
    trainer = make_trainer(5)
    trainer.fit(tmp_path / "run")
    last = Run.open(tmp_path / "run").load_last()
    assert isinstance(last, Checkpoint)
    other = torch.optim.SGD(trainer.learner.meta_parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(CheckpointError, match="its settings do not match the optimizer"):
        last.restore(trainer.learner, other)
