"""The untrained learner as a candidate for the best model, and the gain over it."""

from __future__ import annotations

import itertools

import pytest
import torch

from alfa.evaluation import difference, evaluate
from alfa.runs import Checkpoint, Run
from alfa.training import OuterStep, Progress, train_run

START = "outer.validate_start=true"
MANY = "outer.num_val_tasks=40", "test.num_tasks=50"


def test_the_start_is_validated_and_nothing_else_changes(tiny, unbroken, tensors) -> None:
    plain, found = Run(unbroken(tiny())), Run(unbroken(tiny(START)))
    assert [record["iteration"] for record in found.metrics] == [0, 5, 10, 15, 20]
    assert set(found.metrics[0]) == {"iteration", "val_loss"}
    assert found.metrics[1:] == plain.metrics
    assert found.fingerprint == plain.fingerprint
    assert tensors(found.path) == tensors(plain.path)
    assert not plain.files.checkpoint("start").exists()
    assert not {"start", "gain"} & plain.result.keys()


def test_the_gain_is_the_paired_difference_to_the_start(tiny, unbroken) -> None:
    run = Run.open(unbroken(tiny(START, *MANY)))
    tasks, result = run.tasks(), run.result
    assert result["best_iteration"] > 0
    start, best = run.learner("best"), run.learner("best")
    run.load_checkpoint("start").restore(start)
    for split, count in (("val", 40), ("test", 50)):
        options = {"tasks": tasks, "num_tasks": count, "split": split, "seed": 0}
        before, after = evaluate(start, **options), evaluate(best, **options)
        gain = result["gain"][split]
        # The loss falls, so the gain is positive.
        expected = difference(before, after)
        assert gain["mean"] == pytest.approx(expected.mean)
        assert gain["mean"] > 0
        assert gain["interval"] == pytest.approx(expected.interval)
        assert (gain["num_tasks"], gain["is_decided"]) == (count, expected.is_decided)
    assert result["start"]["loss"] == pytest.approx(before.loss)
    first = run.metrics[0]["val_loss"]
    assert first - result["val_loss"] == pytest.approx(result["gain"]["val"]["mean"])


def test_a_training_that_does_not_help_keeps_the_start(tiny, tmp_path, monkeypatch) -> None:
    def harmful(step: OuterStep, iteration: int) -> float:
        with torch.no_grad():
            # The bias of the outputs.
            step.parameters[-1].add_(10)
        return 1.0

    monkeypatch.setattr(OuterStep, "__call__", harmful)
    result = train_run(
        Run.new(tmp_path / "run", tiny(START, "outer.num_iterations=5", method="maml"))
    )
    run = Run.open(tmp_path / "run")
    assert run.metrics[1]["val_loss"] > run.metrics[0]["val_loss"]
    assert result["best_iteration"] == 0
    assert result["test"] == result["start"]
    assert [gain["mean"] for gain in result["gain"].values()] == [0, 0]
    best, start, last = (run.load_checkpoint(name) for name in ("best", "start", "last"))
    assert best.progress["iteration"] == 0
    assert all(best.tensors[key].equal(tensor) for key, tensor in start.tensors.items())
    assert not all(last.tensors[key].equal(tensor) for key, tensor in start.tensors.items())


@pytest.mark.parametrize("number", range(1, 6))
def test_a_run_interrupted_while_it_saves_the_start_resumes_to_the_same_numbers(
    tiny, unbroken, tmp_path, assert_same, monkeypatch, number: int
) -> None:
    path, saves, save = tmp_path / "run", itertools.count(1), Checkpoint.save

    def interrupted(self: Checkpoint, *given, **options) -> None:
        if next(saves) == number:
            raise KeyboardInterrupt
        save(self, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_run(Run.new(path, tiny(START)))
    train_run(Run.new(path, tiny(START)), resume=True)
    assert_same(path, unbroken(tiny(START)))
    assert Run(path).result["gain"] == Run(unbroken(tiny(START))).result["gain"]


def test_the_start_can_be_the_only_model(tiny, tmp_path) -> None:
    """A fixed init with a rule without parameters has nothing to train."""
    fixed = "init.name=fixed", "rule.name=sgd"
    seen: list[Progress] = []
    result = train_run(
        Run.new(tmp_path / "run", tiny(START, *fixed, method="maml")), on_progress=seen.append
    )
    assert (result["best_iteration"], result["num_iterations"]) == (0, 0)
    assert result["gain"]["test"]["mean"] == 0
    assert [p.record["iteration"] for p in seen if p.record] == [0]
