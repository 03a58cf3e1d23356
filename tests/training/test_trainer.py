"""Training is repeatable to the bit, can be resumed at any point, and lowers the loss."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w
import torch
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_pre_hook

from alfa.build._build import build_learner, build_tasks
from alfa.config import to_dict
from alfa.data import Sinusoids
from alfa.errors import CheckpointError, ConfigError, DivergedError
from alfa.evaluation import evaluate
from alfa.models import MLP, MODELS, register_model
from alfa.rules import SGD, register_rule
from alfa.runs import Checkpoint, Run
from alfa.training import Progress, train_run
from alfa.types import Rates


def _stop_at(iteration: int):
    def on_progress(progress: Progress) -> None:
        if progress.iteration == iteration:
            raise KeyboardInterrupt

    return on_progress


@pytest.mark.parametrize("method", ["maml", "alfa+maml"])
def test_two_runs_are_identical(tiny, unbroken, tmp_path, assert_same, method: str) -> None:
    train_run(Run.new(tmp_path / "run", tiny(method=method)))
    assert_same(tmp_path / "run", unbroken(tiny(method=method)))


def test_another_seed_gives_another_run(tiny, unbroken, tensors) -> None:
    first, second = unbroken(tiny()), unbroken(tiny("seed=1"))
    assert (first / "metrics.jsonl").read_bytes() != (second / "metrics.jsonl").read_bytes()
    assert tensors(first) != tensors(second)


def test_metrics_are_written_at_every_validation_and_at_the_end(tiny, unbroken) -> None:
    records = Run(unbroken(tiny("outer.num_iterations=12"))).metrics
    assert [record["iteration"] for record in records] == [5, 10, 12]
    assert all(set(record) == {"iteration", "train_loss", "val_loss"} for record in records)


@pytest.mark.parametrize("iteration", [1, 4, 5, 7, 13, 20])
def test_an_interrupted_run_resumes_to_the_same_numbers(
    tiny, unbroken, tmp_path, assert_same, iteration: int
) -> None:
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_run(Run.new(path, tiny()), on_progress=_stop_at(iteration))
    assert not (path / "result.json").exists()

    train_run(Run.new(path, tiny()), resume=True)

    assert_same(path, unbroken(tiny()))


@pytest.mark.parametrize("often", ["engine.checkpoint_seconds=1e-9", "engine.checkpoint_every=1"])
@pytest.mark.parametrize("iteration", [3, 7, 12])
def test_a_run_is_kept_between_validations_too(
    tiny, unbroken, tmp_path, assert_same, iteration: int, often: str
) -> None:
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_run(Run.new(path, tiny(often)), on_progress=_stop_at(iteration))
    assert Run(path).load_checkpoint("last").progress["iteration"] == iteration

    train_run(Run.new(path, tiny()), resume=True)

    assert_same(path, unbroken(tiny()))


def test_a_run_interrupted_twice_resumes_to_the_same_numbers(
    tiny, unbroken, tmp_path, assert_same
) -> None:
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_run(Run.new(path, tiny()), on_progress=_stop_at(8))
    with pytest.raises(KeyboardInterrupt):
        train_run(Run.new(path, tiny()), resume=True, on_progress=_stop_at(16))
    train_run(Run.new(path, tiny()), resume=True)
    assert_same(path, unbroken(tiny()))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_run_interrupted_while_it_saves_resumes_to_the_same_numbers(
    tiny, unbroken, tmp_path, assert_same, monkeypatch, number: int
) -> None:
    path, saves, save = tmp_path / "run", [], Checkpoint.save

    def interrupted(self: Checkpoint, target: Path, **options: Path) -> None:
        saves.append(target)
        if len(saves) == number:
            raise KeyboardInterrupt
        save(self, target, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_run(Run.new(path, tiny()))
    train_run(Run.new(path, tiny()), resume=True)
    assert_same(path, unbroken(tiny()))


def test_a_killed_run_resumes_to_the_same_numbers(tiny, unbroken, tmp_path, assert_same) -> None:
    experiment = tiny("outer.num_iterations=150")
    config, path = tmp_path / "experiment.toml", tmp_path / "run"
    config.write_text(tomli_w.dumps(to_dict(experiment)))
    code = "import sys; from alfa.cli.main import main; main(sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-c", code, "train", str(config), "--out", str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wanted, deadline = random.randint(1, 15), time.monotonic() + 60
        while len(Run(path).metrics) < wanted and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not (path / "result.json").exists()
    assert Run(path).metrics

    train_run(Run.new(path, Run(path).experiment), resume=True)

    assert_same(path, unbroken(experiment))


def test_a_half_written_last_line_of_the_metrics_is_ignored(
    tiny, unbroken, tmp_path, assert_same
) -> None:
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_run(Run.new(path, tiny()), on_progress=_stop_at(12))
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 15, "train_lo')
    assert [record["iteration"] for record in Run(path).metrics] == [5, 10]

    train_run(Run.new(path, tiny()), resume=True)

    assert_same(path, unbroken(tiny()))


def test_resuming_a_complete_run_changes_nothing(tiny, unbroken, tmp_path, assert_same) -> None:
    path = tmp_path / "run"
    shutil.copytree(unbroken(tiny()), path)
    train_run(Run.new(path, tiny()), resume=True)
    assert_same(path, unbroken(tiny()))


def test_more_iterations_on_resume_give_the_longer_run(
    tiny, unbroken, tmp_path, assert_same
) -> None:
    path = tmp_path / "run"
    train_run(Run.new(path, tiny("outer.num_iterations=10")))
    train_run(Run.new(path, tiny()), resume=True)
    assert_same(path, unbroken(tiny()))


def test_an_extended_run_remembers_how_long_it_is(tiny, tmp_path) -> None:
    path = tmp_path / "run"
    train_run(Run.new(path, tiny("outer.num_iterations=10")))
    with pytest.raises(KeyboardInterrupt):
        train_run(Run.new(path, tiny()), resume=True, on_progress=_stop_at(16))
    result = train_run(Run.new(path, Run(path).experiment), resume=True)
    assert result["num_iterations"] == 20


def test_resuming_with_another_experiment_is_refused(tiny, unbroken, tmp_path) -> None:
    path = tmp_path / "run"
    shutil.copytree(unbroken(tiny()), path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(CheckpointError, match="belongs to another experiment"):
        train_run(Run.new(path, tiny("optimizer.learning_rate=0.5")), resume=True)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_resuming_another_experiment_before_its_first_checkpoint_is_refused(tiny, tmp_path) -> None:
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_run(Run.new(path, tiny()), on_progress=_stop_at(2))
    with pytest.raises(CheckpointError, match="another experiment: seed is 0 and 1; undo the"):
        train_run(Run.new(path, tiny("seed=1")), resume=True)


def test_resuming_what_is_no_run_is_refused(tiny, tmp_path) -> None:
    with pytest.raises(CheckpointError, match="is not a run: it does not exist"):
        train_run(Run.new(tmp_path / "run", tiny()), resume=True)
    assert not (tmp_path / "run").exists()


def test_a_folder_with_something_in_it_is_refused(tiny, tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="is not empty; choose another folder"):
        train_run(Run.new(tmp_path, tiny()))
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_run_is_not_overwritten(tiny, unbroken) -> None:
    path = unbroken(tiny())
    before = (path / "result.json").read_bytes()
    with pytest.raises(CheckpointError, match="is not empty; continue it with --resume"):
        train_run(Run.new(path, tiny()))
    assert (path / "result.json").read_bytes() == before


def test_an_empty_folder_is_used(tiny, tmp_path) -> None:
    train_run(Run.new(tmp_path, tiny("outer.num_iterations=1")))
    assert (tmp_path / "result.json").is_file()


def test_what_cannot_be_built_leaves_no_folder(tiny, tmp_path) -> None:
    constant = "{source='constant', value=0.1}"
    experiment = tiny(f"rule.alpha={constant}", f"rule.beta={constant}")
    with pytest.raises(ConfigError, match="neither `alpha` nor `beta` is generated"):
        train_run(Run.new(tmp_path / "run", experiment))
    assert not (tmp_path / "run").exists()


def test_the_result_says_what_was_run(tiny, unbroken) -> None:
    result = json.loads((unbroken(tiny("seed=1")) / "result.json").read_text())
    assert result["test"]["seed"] == 1
    assert result["test"]["num_tasks"] == 5
    assert result["test"]["split"] == "test"
    assert result["num_iterations"] == 20
    assert result["versions"]["torch"] == torch.__version__
    assert set(result["versions"]) == {"alfa", "torch", "python"}
    assert result["config"] == to_dict(tiny("seed=1"))


def test_the_tested_model_is_the_one_best_in_validation(tiny, unbroken) -> None:
    experiment = tiny()
    run = Run(unbroken(experiment))
    records, result = run.metrics, run.result
    best = min(records, key=lambda record: record["val_loss"])
    assert (result["best_iteration"], result["val_loss"]) == (best["iteration"], best["val_loss"])

    tasks = build_tasks(experiment)
    learner = build_learner(experiment, tasks)
    run.load_checkpoint("best").restore(learner)
    assert evaluate(learner, tasks, num_tasks=5).as_dict() == result["test"]
    assert evaluate(learner, tasks, num_tasks=4, split="val").loss == best["val_loss"]


def test_nothing_to_train_still_gives_a_result(tiny, tmp_path) -> None:
    experiment = tiny("init.name=fixed", method="maml")
    tasks = build_tasks(experiment)
    untrained = build_learner(experiment, tasks)
    before = evaluate(untrained, tasks, num_tasks=4, split="val").loss

    result = train_run(Run.new(tmp_path / "run", experiment))

    assert (result["num_iterations"], result["num_meta_parameters"]) == (0, 0)
    assert result["val_loss"] == before
    assert Run(tmp_path / "run").metrics == [{"iteration": 0, "val_loss": before}]
    learner = build_learner(tiny("init.name=fixed", "seed=9", method="maml"), tasks)
    Run(tmp_path / "run").load_checkpoint("best").restore(learner)
    assert all(torch.equal(v, learner.state_dict()[k]) for k, v in untrained.state_dict().items())


def test_resuming_with_nothing_to_train_changes_nothing(tiny, tmp_path, assert_same) -> None:
    experiment = tiny("init.name=fixed", method="maml")
    train_run(Run.new(tmp_path / "run", experiment))
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    train_run(Run.new(tmp_path / "run", experiment), resume=True)
    assert_same(tmp_path / "run", tmp_path / "copy")


def test_a_result_of_one_task_is_valid_json(tiny, tmp_path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    train_run(Run.new(tmp_path / "run", tiny("test.num_tasks=1", "outer.num_iterations=1")))
    text = (tmp_path / "run" / "result.json").read_text()
    assert json.loads(text, parse_constant=refuse)["test"]["num_tasks"] == 1


def test_a_huge_inner_learning_rate_is_named_as_diverged(tiny, tmp_path) -> None:
    experiment = tiny("rule.learning_rate=1e30", method="maml")
    with pytest.raises(
        DivergedError, match=r"at step \d of task 0 is (inf|nan) at iteration 0, with the rule sgd;"
    ):
        train_run(Run.new(tmp_path / "run", experiment))


@pytest.mark.usefixtures("own_rules")
def test_divergence_keeps_the_last_good_checkpoint(tiny, unbroken, tmp_path, tensors) -> None:
    @register_rule("bursting")
    class Bursting(SGD):
        """Diverges on task 2 in the third step of the 13th iteration."""

        steps_trained = 0

        def rates(self, step, params, grads, state=()) -> Rates:
            rates = super().rates(step, params, grads, state)
            self.steps_trained += torch.is_grad_enabled()
            alpha = rates.alpha.expand(params.num_tasks, 1).clone()
            if self.steps_trained == 5 * 12 + 3:
                alpha[2] = torch.nan
            return Rates(alpha, rates.beta)

    experiment, path = tiny("rule.name=bursting", method="maml"), tmp_path / "run"
    with pytest.raises(
        DivergedError,
        match="support loss at step 4 of task 50 is nan at iteration 12, with the rule bursting;",
    ):
        train_run(Run.new(path, experiment))

    assert Run(path).load_checkpoint("last").progress["iteration"] == 10
    assert [record["iteration"] for record in Run(path).metrics] == [5, 10]
    good = unbroken(tiny("outer.num_iterations=10", method="maml"))
    assert tensors(path) == tensors(good)


def test_a_huge_outer_learning_rate_is_named_as_diverged(tiny, tmp_path) -> None:
    experiment = tiny("optimizer.learning_rate=1e25", method="maml")
    with pytest.raises(DivergedError, match=r"at iteration [1-9]\d*, with the rule sgd"):
        train_run(Run.new(tmp_path / "run", experiment))


def _longest_gradient(experiment, path: Path) -> float:
    norms = []

    def record(optimizer, args, kwargs) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norms.append(float(torch.cat([g.flatten() for g in gradients if g is not None]).norm()))

    handle = register_optimizer_step_pre_hook(record)
    try:
        train_run(Run.new(path, experiment))
    finally:
        handle.remove()
    assert len(norms) == experiment.outer.num_iterations
    return max(norms)


def test_max_gradient_norm_limits_the_gradient(tiny, tmp_path) -> None:
    free = tiny("outer.max_gradient_norm=1e9", "outer.num_iterations=5")
    limited = tiny("outer.max_gradient_norm=0.01", "outer.num_iterations=5")
    assert _longest_gradient(free, tmp_path / "free") > 0.1
    assert _longest_gradient(limited, tmp_path / "limited") == pytest.approx(0.01, rel=1e-3)


def test_on_progress_sees_every_iteration_and_every_record(tiny, tmp_path) -> None:
    seen: list[Progress] = []
    train_run(Run.new(tmp_path / "run", tiny("outer.num_iterations=7")), on_progress=seen.append)
    first, *rest = [progress for progress in seen if progress.work is None]
    assert first.message.startswith("memory: store, 4 tasks at once (chosen); needs about 0.0 GB")
    assert [progress.iteration for progress in rest] == [1, 2, 3, 4, 5, 6, 7]
    assert {progress.message for progress in rest} == {None}
    assert {progress.num_iterations for progress in seen} == {7}
    records = [progress.record for progress in seen if progress.record is not None]
    assert records == Run(tmp_path / "run").metrics


_DECAY = "rule.per_parameter_decay=true"


@pytest.mark.parametrize(
    ("rule", "init"),
    [
        (["rule.name=sgd"], ["init.name=learned"]),
        (["rule.name=sgd"], ["init.name=attenuated"]),
        (["rule.name=learned"], ["init.name=learned"]),
        (["rule.name=learned"], ["init.name=attenuated"]),
        (["rule.name=learned", _DECAY], ["init.name=fixed"]),
        (["rule.name=alfa"], ["init.name=learned"]),
        (["rule.name=alfa"], ["init.name=attenuated"]),
        (["rule.name=alfa", _DECAY], ["init.name=fixed"]),
        (["rule.name=alfa"], ["init.name=learned", "inner.order=first"]),
    ],
    ids=lambda overrides: "-".join(o.partition("=")[2] for o in overrides),
)
def test_training_lowers_the_validation_loss(
    tiny, tmp_path, rule: list[str], init: list[str]
) -> None:
    experiment = tiny(
        *rule,
        *init,
        "model.hidden=[16]",
        "tasks.num_query=20",
        "outer.num_iterations=100",
        "outer.validate_every=100",
        "outer.num_val_tasks=50",
        "optimizer.learning_rate=0.003",
        "seed=1",
    )
    tasks = build_tasks(experiment)
    learner = build_learner(experiment, tasks)
    before = evaluate(learner, tasks, num_tasks=50, split="val", seed=1).loss
    result = train_run(Run.new(tmp_path / "run", experiment))
    assert result["val_loss"] < 0.97 * before


def test_iterations_that_are_not_finite_can_be_passed_over(tiny, tmp_path, monkeypatch):
    draw = Sinusoids.episode

    def spoiled(self, first, *, num_tasks, split="train", seed=0):
        episode = draw(self, first, num_tasks=num_tasks, split=split, seed=seed)
        if split == "train" and first // num_tasks in (3, 7):
            episode.query_y[0] = float("inf")
        return episode

    monkeypatch.setattr(Sinusoids, "episode", spoiled)
    strict = tiny("outer.max_skipped=1")
    with pytest.raises(DivergedError, match="at iteration 7"):
        train_run(Run.new(tmp_path / "strict", strict))
    result = train_run(Run.new(tmp_path / "patient", tiny("outer.max_skipped=2")))
    assert result["skipped"] == 2
    assert [r.get("skipped") for r in Run(tmp_path / "patient").metrics][:2] == [1, 2]

    # A run that stopped at the limit resumes with a higher limit to the same numbers.
    resumed = train_run(Run.new(tmp_path / "strict", tiny("outer.max_skipped=2")), resume=True)
    assert resumed["test"] == result["test"]
    assert resumed["skipped"] == 2


def test_a_validation_that_is_not_finite_is_passed_over_and_never_best(tiny, tmp_path, monkeypatch):
    draw = Sinusoids.episode
    calls = []

    def spoiled(self, first, *, num_tasks, split="train", seed=0):
        episode = draw(self, first, num_tasks=num_tasks, split=split, seed=seed)
        if split == "val":
            calls.extend([first] if first == 0 else [])
            if len(calls) == 2:
                episode.query_y[0] = float("inf")
        return episode

    monkeypatch.setattr(Sinusoids, "episode", spoiled)
    result = train_run(Run.new(tmp_path / "run", tiny("outer.max_skipped=1")))
    losses = [record["val_loss"] for record in Run(tmp_path / "run").metrics]
    assert losses[1] is None
    assert result["val_loss"] == min(loss for loss in losses if loss is not None)


def test_fewer_iterations_than_are_done_are_refused(tiny, tmp_path):
    train_run(Run.new(tmp_path / "run", tiny()))
    with pytest.raises(CheckpointError, match="was trained for 20 iterations, more than the 10"):
        train_run(Run.new(tmp_path / "run", tiny("outer.num_iterations=10")), resume=True)


def test_going_on_longer_takes_the_old_result_away_first(tiny, tmp_path):
    train_run(Run.new(tmp_path / "run", tiny()))
    longer = tiny("outer.num_iterations=40")
    with pytest.raises(KeyboardInterrupt):
        train_run(Run.new(tmp_path / "run", longer), resume=True, on_progress=_stop_at(23))
    assert Run(tmp_path / "run").result is None
    assert train_run(Run.new(tmp_path / "run", longer), resume=True)["num_iterations"] == 40


def test_no_finite_validation_at_all_is_said(tiny, tmp_path, monkeypatch):
    draw = Sinusoids.episode

    def spoiled(self, first, *, num_tasks, split="train", seed=0):
        episode = draw(self, first, num_tasks=num_tasks, split=split, seed=seed)
        if split == "val":
            episode.query_y[0] = float("inf")
        return episode

    monkeypatch.setattr(Sinusoids, "episode", spoiled)
    with pytest.raises(DivergedError, match=r"no validation of .* was finite"):
        train_run(Run.new(tmp_path / "run", tiny("outer.max_skipped=9")))


def test_a_model_with_dropout_repeats_and_is_tested_without_it(tiny, tmp_path, dropping):
    experiment = tiny(f"model={{name='{dropping}'}}", "outer.num_iterations=6")
    for name in ("first", "second"):
        train_run(Run.new(tmp_path / name, experiment))
    with pytest.raises(KeyboardInterrupt):
        train_run(Run.new(tmp_path / "third", experiment), on_progress=_stop_at(5))
    train_run(Run.new(tmp_path / "third", experiment), resume=True)
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("first", "second")]
    assert metrics[0] == metrics[1] == (tmp_path / "third" / "metrics.jsonl").read_bytes()

    tasks = build_tasks(experiment)
    learner = build_learner(experiment, tasks)
    assert evaluate(learner, tasks, num_tasks=3) == evaluate(learner, tasks, num_tasks=3)
    assert learner.model.net[2].training


def test_what_a_users_model_draws_by_functions_repeats(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(MODELS, "_parts", dict(MODELS._parts))

    @register_model("noisy")
    class Noisy(MLP):
        drawn = 0

        def stacked(self, *args):
            Noisy.drawn += 1
            return F.dropout(super().stacked(*args), 0.2)

        def support_gradients(self, *args):
            return None

    experiment = tiny("model.name='noisy'", "outer.num_iterations=6")
    train_run(Run.new(tmp_path / "whole", experiment))
    with pytest.raises(KeyboardInterrupt):
        train_run(Run.new(tmp_path / "parts", experiment), on_progress=_stop_at(5))
    torch.manual_seed(1)
    train_run(Run.new(tmp_path / "parts", experiment), resume=True)
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "parts")]
    assert metrics[0] == metrics[1]
    assert Noisy.drawn > 0
