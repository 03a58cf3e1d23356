"""Engine settings change how a run is computed, but not its results."""

from __future__ import annotations

import dataclasses

import pytest
from torch import nn

from alfa.errors import ConfigError
from alfa.learner import _budget as budget
from alfa.models import MODELS, register_model
from alfa.runs import Run
from alfa.training import Progress, train_run

SETTINGS = [
    "engine.memory=recompute",
    "engine.memory=store",
    "engine.tasks_at_once=1",
    "engine.tasks_at_once=3",
    "engine.over_tasks=loop",
    "engine.over_tasks=stack",
    "engine.memory_budget=1e-9",
]


@pytest.fixture
def short(tiny):
    """A tiny experiment of ten iterations."""
    return lambda *overrides, **options: tiny("outer.num_iterations=10", *overrides, **options)


@pytest.fixture
def messages():
    """Collect the messages of a run."""
    told: list[str] = []

    def on_progress(progress: Progress) -> None:
        if progress.message is not None:
            told.append(progress.message)

    return told, on_progress


def assert_same_figures(result, expected) -> None:
    assert result["test"]["loss"] == pytest.approx(expected["test"]["loss"], rel=1e-4)
    assert result["val_loss"] == pytest.approx(expected["val_loss"], rel=1e-4)
    assert result["best_iteration"] == expected["best_iteration"]


@pytest.fixture(scope="module")
def default(tmp_path_factory):
    """Return the result of an experiment without engine settings."""
    done = {}

    def get(experiment, method):
        if method not in done:
            done[method] = train_run(
                Run.new(tmp_path_factory.mktemp("default") / "run", experiment)
            )
        return done[method]

    return get


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("method", ["maml", "alfa+maml"])
def test_no_setting_changes_the_figures(short, tmp_path, default, method, setting) -> None:
    result = train_run(Run.new(tmp_path / "run", short(setting, method=method)))
    assert_same_figures(result, default(short(method=method), method))


def test_all_of_them_together_change_no_figures(short, tmp_path, default) -> None:
    settings = ["engine.memory=recompute", "engine.tasks_at_once=1", "engine.over_tasks=loop"]
    result = train_run(Run.new(tmp_path / "run", short(*settings)))
    assert_same_figures(result, default(short(), "alfa+maml"))
    engine = Run(tmp_path / "run").experiment.engine
    assert (engine.memory, engine.tasks_at_once, engine.over_tasks) == ("recompute", 1, "loop")


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_run_resumes_with_other_settings(short, tmp_path, default, setting) -> None:
    path = tmp_path / "run"
    train_run(Run.new(path, short("outer.num_iterations=5")))
    result = train_run(Run.new(path, short(setting)), resume=True)
    assert_same_figures(result, default(short(), "alfa+maml"))
    assert Run(path).experiment.engine == short(setting).engine


def test_a_run_says_once_how_it_uses_memory(short, tmp_path, messages) -> None:
    told, on_progress = messages
    train_run(Run.new(tmp_path / "run", short("engine.memory_budget=2.5")), on_progress=on_progress)
    assert len(told) == 1
    assert told[0].startswith("memory: store, 4 tasks at once (chosen); needs about 0.0 GB")
    assert told[0].endswith("of a budget of 2.5 GB")


def test_a_run_says_that_it_does_as_asked(short, tmp_path, messages) -> None:
    told, on_progress = messages
    settings = ["engine.memory=recompute", "engine.tasks_at_once=2"]
    train_run(Run.new(tmp_path / "run", short(*settings)), on_progress=on_progress)
    assert told == ["memory: recompute, 2 tasks at once (requested)"]


def test_a_run_says_which_part_it_chose(short, tmp_path, messages) -> None:
    told, on_progress = messages
    train_run(Run.new(tmp_path / "run", short("engine.memory=store")), on_progress=on_progress)
    assert told[0].startswith("memory: store (requested), 4 tasks at once (chosen); needs")


def test_a_tiny_budget_is_met_by_recomputing_one_task_at_once(short, tmp_path, messages) -> None:
    told, on_progress = messages
    train_run(
        Run.new(tmp_path / "run", short("engine.memory_budget=1e-9")), on_progress=on_progress
    )
    assert told[0].startswith("memory: recompute, 1 task at once (chosen); needs")
    assert told[0].endswith("of a budget of 0.0 GB, which may not be enough")


# The memory plan of a resumed run


@pytest.fixture
def busy(monkeypatch):
    """Leave no free memory on the machine."""
    return lambda: monkeypatch.setattr(budget, "free_memory", lambda device: 0)


@pytest.fixture
def used():
    """Return the memory mode and the tasks at once of a result."""
    return lambda result: (result["engine"]["memory"], result["engine"]["tasks_at_once"])


@pytest.fixture
def dropping(monkeypatch):
    """A model that draws random numbers, in an order that depends on the tasks at once."""
    monkeypatch.setattr(MODELS, "_parts", dict(MODELS._parts))

    @register_model("dropping")
    class Dropping(nn.Module):
        def __init__(self, input_shape, num_outputs):
            super().__init__()
            self.net = nn.Sequential(
                nn.Linear(1, 8), nn.Tanh(), nn.Dropout(), nn.Linear(8, num_outputs)
            )

        def forward(self, x):
            return self.net(x)

    return "model={name='dropping'}"


def test_a_busier_machine_resumes_to_the_same_numbers(
    short, tmp_path, dropping, busy, used, messages
) -> None:
    told, on_progress = messages
    whole = train_run(Run.new(tmp_path / "whole", short(dropping)))
    train_run(Run.new(tmp_path / "run", short(dropping, "outer.num_iterations=5")))
    busy()
    result = train_run(
        Run.new(tmp_path / "run", short(dropping)), resume=True, on_progress=on_progress
    )
    for name in ("metrics.jsonl", "config.toml"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert result["test"] == whole["test"]
    assert used(result) == used(whole) == ("store", 4)
    assert told[0].startswith("memory: store, 4 tasks at once (resumed); needs about 0.0 GB")
    assert told[0].endswith("which may not be enough")


def test_a_new_run_on_a_busy_machine_uses_less(short, tmp_path, busy, used) -> None:
    busy()
    result = train_run(Run.new(tmp_path / "run", short()))
    assert used(result) == ("recompute", 1)
    assert used(Run(tmp_path / "run").result) == ("recompute", 1)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("engine.memory=recompute", ("recompute", 4)),
        ("engine.tasks_at_once=2", ("store", 2)),
        ("engine.memory_budget=1e-9", ("recompute", 1)),
    ],
)
def test_what_a_resumed_run_asks_for_holds(short, tmp_path, used, setting, expected) -> None:
    path = tmp_path / "run"
    train_run(Run.new(path, short("outer.num_iterations=5")))
    with pytest.raises(KeyboardInterrupt):
        train_run(Run.new(path, short(setting)), resume=True, on_progress=_stop_at(7))
    assert used(train_run(Run.new(path, short(setting)), resume=True)) == expected


def test_a_run_keeps_to_its_plan_after_its_last_iteration(short, tmp_path, used) -> None:
    path = tmp_path / "run"
    train_run(Run.new(path, short("engine.tasks_at_once=2")))
    assert used(train_run(Run.new(path, short("engine.tasks_at_once=3")), resume=True)) == (
        "store",
        2,
    )


def test_a_checkpoint_without_a_plan_is_resumed(short, tmp_path, used, default, busy) -> None:
    path = tmp_path / "run"
    experiment = short("outer.num_iterations=5")
    train_run(Run.new(path, experiment))
    saved = Run(path).load_checkpoint("last")
    progress = {k: v for k, v in saved.progress.items() if not k.startswith("memory")}
    dataclasses.replace(saved, progress=progress).save(Run(path).files.checkpoint("last"))
    busy()
    result = train_run(Run.new(path, short()), resume=True)
    assert used(result) == ("recompute", 1)
    assert_same_figures(result, default(short(), "alfa+maml"))


def test_where_nothing_is_trained_nothing_is_planned(short, tmp_path, used, messages) -> None:
    told, on_progress = messages
    experiment = short("init.name=fixed", method="maml")
    assert used(train_run(Run.new(tmp_path / "run", experiment), on_progress=on_progress)) == (
        None,
        None,
    )
    assert told == []


def _stop_at(iteration: int):
    def on_progress(progress: Progress) -> None:
        if progress.iteration == iteration:
            raise KeyboardInterrupt

    return on_progress


def test_a_complete_run_that_is_resumed_says_nothing(short, tmp_path, messages) -> None:
    told, on_progress = messages
    train_run(Run.new(tmp_path / "run", short()))
    train_run(Run.new(tmp_path / "run", short()), resume=True, on_progress=on_progress)
    assert told == []


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("memory=disk", r"engine\.memory is 'disk', but must be 'auto', 'store' or 'recompute'\."),
        ("tasks_at_once=0", r"engine\.tasks_at_once is 0, but must be greater than .* 1\."),
        ("memory_budget=-1", r"engine\.memory_budget is -1, but must be greater than 0\."),
        ("memory_budget=0", r"engine\.memory_budget is 0, but must be greater than 0\."),
        ("over_tasks=vmap", r"engine\.over_tasks is 'vmap', but must be 'auto', 'loop' or"),
        ("memry=store", r"engine\.memry is not a known key.*Did you mean 'memory'"),
    ],
)
def test_a_wrong_value_is_named_in_one_sentence(tiny, setting, sentence) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        tiny(f"engine.{setting}")
    assert "\n" not in str(caught.value)
