"""Engine settings: they change how a run is computed, and not what comes of it."""

from __future__ import annotations

import pytest

from alfa.errors import ConfigError
from alfa.train import Progress, Run, train

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
    """What a run tells the user."""
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
    """The result of an experiment with no engine settings."""
    done = {}

    def get(experiment, base):
        if base not in done:
            done[base] = train(experiment, tmp_path_factory.mktemp("default") / "run")
        return done[base]

    return get


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("base", ["sinusoid-maml", "sinusoid-alfa"])
def test_no_setting_changes_the_figures(short, tmp_path, default, base, setting) -> None:
    result = train(short(setting, base=base), tmp_path / "run")
    assert_same_figures(result, default(short(base=base), base))


def test_all_of_them_together_change_no_figures(short, tmp_path, default) -> None:
    settings = ["engine.memory=recompute", "engine.tasks_at_once=1", "engine.over_tasks=loop"]
    result = train(short(*settings), tmp_path / "run")
    assert_same_figures(result, default(short(), "sinusoid-alfa"))
    engine = Run(tmp_path / "run").experiment().engine
    assert (engine.memory, engine.tasks_at_once, engine.over_tasks) == ("recompute", 1, "loop")


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_run_resumes_with_other_settings(short, tmp_path, default, setting) -> None:
    path = tmp_path / "run"
    train(short("outer.num_iterations=5"), path)
    result = train(short(setting), path, resume=True)
    assert_same_figures(result, default(short(), "sinusoid-alfa"))
    assert Run(path).experiment().engine == short(setting).engine


def test_a_run_says_once_how_it_uses_memory(short, tmp_path, messages) -> None:
    told, on_progress = messages
    train(short("engine.memory_budget=2.5"), tmp_path / "run", on_progress=on_progress)
    assert len(told) == 1
    assert told[0].startswith("memory: store, 4 tasks at once (chosen); needs about 0.0 GB")
    assert told[0].endswith("of a budget of 2.5 GB")


def test_a_run_says_that_it_does_as_asked(short, tmp_path, messages) -> None:
    told, on_progress = messages
    settings = ["engine.memory=recompute", "engine.tasks_at_once=2"]
    train(short(*settings), tmp_path / "run", on_progress=on_progress)
    assert told[0].startswith("memory: recompute, 2 tasks at once (as asked for); needs")


def test_a_tiny_budget_is_met_by_recomputing_one_task_at_once(short, tmp_path, messages) -> None:
    told, on_progress = messages
    train(short("engine.memory_budget=1e-9"), tmp_path / "run", on_progress=on_progress)
    assert told[0].startswith("memory: recompute, 1 task at once (chosen); needs")
    assert told[0].endswith("of a budget of 0.0 GB, which may not be enough")


def test_a_complete_run_that_is_resumed_says_nothing(short, tmp_path, messages) -> None:
    told, on_progress = messages
    train(short(), tmp_path / "run")
    train(short(), tmp_path / "run", resume=True, on_progress=on_progress)
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
