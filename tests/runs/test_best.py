"""The test uses the best model of the trainer state, whatever happened to its file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from alfa.build._build import build_learner, build_tasks
from alfa.errors import AlfaWarning, CheckpointError
from alfa.evaluation import Evaluation, evaluate
from alfa.runs import Checkpoint, Run
from alfa.training import train_run


@pytest.fixture
def judged(monkeypatch) -> Callable[[Sequence[float]], None]:
    """Replace the losses of successive validations, as if another machine computed them."""

    def give(losses: Sequence[float]) -> None:
        left: Iterator[float] = iter(losses)

        def judge(*args: object, split: str, **options: object) -> Evaluation:
            found = evaluate(*args, split=split, **options)
            return found if split == "test" else replace(found, loss=next(left))

        monkeypatch.setattr("alfa.training._loop.evaluate", judge)

    return give


def _assert_tested(path: Path, experiment, result: dict) -> None:
    """The remaining file holds the model of the result."""
    best = Run(path).load_checkpoint("best")
    assert best.progress["iteration"] == result["best_iteration"]
    assert not any(key.startswith("optimizer") for key in best.tensors)
    tasks = build_tasks(experiment)
    learner = build_learner(experiment, tasks)
    best.restore(learner)
    assert evaluate(learner, tasks, num_tasks=5).loss == result["test"]["loss"]


@pytest.mark.parametrize("ensemble", [1, 3])
@pytest.mark.parametrize("number", range(1, 8))
def test_a_run_killed_while_it_saves(
    tiny, tmp_path, monkeypatch, judged, number: int, ensemble: int
) -> None:
    experiment, path = tiny(f"test.ensemble={ensemble}"), tmp_path / "run"
    save, numbers = Checkpoint.save, itertools.count(1)

    def interrupted(self: Checkpoint, target: Path, **options: Path) -> None:
        if next(numbers) == number:
            raise KeyboardInterrupt
        save(self, target, **options)

    judged([3.0, 2.0, 1.0, 4.0])
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_run(Run.new(path, experiment))
    judged([5.0, 6.0, 7.0, 8.0])
    _assert_tested(path, experiment, train_run(Run.new(path, experiment), resume=True))


def _stopped(tiny, path: Path, *, ensemble: int) -> None:
    """Train for 20 iterations, of which the 5th is the best, and remove the result."""
    train_run(Run.new(path, tiny(f"test.ensemble={ensemble}")))
    (path / "result.json").unlink()


def _remove(file: Path) -> None:
    file.unlink()


def _damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def _exchange(file: Path) -> None:
    file.write_bytes(file.with_name("last.safetensors").read_bytes())


@pytest.mark.parametrize("change", [_remove, _damage, _exchange])
def test_a_best_model_that_was_tested_with_others_is_put_back(
    tiny, tmp_path, judged, change
) -> None:
    judged([1.0, 2.0, 3.0, 4.0])
    path = tmp_path / "run"
    _stopped(tiny, path, ensemble=3)
    before = Run(path).load_checkpoint("best").tensors
    change(Run(path).files.checkpoint("best"))
    judged([5.0])
    longer = tiny("test.ensemble=3", "outer.num_iterations=25")
    result = train_run(Run.new(path, longer), resume=True)
    assert result["best_iteration"] == 5
    assert result["ensemble"]["iterations"] == [5, 10, 15]
    found = Run(path).load_checkpoint("best").tensors
    assert found.keys() == before.keys()
    assert all(torch.equal(found[key], before[key]) for key in before)
    _assert_tested(path, longer, result)


@pytest.mark.parametrize("change", [_remove, _damage, _exchange])
@pytest.mark.parametrize(("ensemble", "lost"), [(1, "5"), (2, "5, 10")])
def test_a_best_model_that_is_lost_is_told_and_forgotten(
    tiny, tmp_path, judged, change, ensemble: int, lost: str
) -> None:
    judged([1.0, 2.0, 3.0, 4.0])
    path = tmp_path / "run"
    _stopped(tiny, path, ensemble=ensemble)
    change(Run(path).files.checkpoint("best"))
    for file in (path / "checkpoints").glob("epoch-*"):
        _damage(file)
    judged([5.0])
    longer = tiny(f"test.ensemble={ensemble}", "outer.num_iterations=25")
    with pytest.warns(AlfaWarning, match=rf"of iteration {lost}, best in validation so far, is"):
        result = train_run(Run.new(path, longer), resume=True)
    assert (result["best_iteration"], result["val_loss"]) == (25, 5.0)
    assert "ensemble" not in result
    _assert_tested(path, longer, result)


def test_nothing_takes_the_place_of_a_best_model_where_nothing_comes(
    tiny, tmp_path, judged
) -> None:
    judged([1.0, 2.0, 3.0, 4.0])
    path = tmp_path / "run"
    _stopped(tiny, path, ensemble=1)
    _exchange(Run(path).files.checkpoint("best"))
    told = r"best\.safetensors is the model of iteration 20, but the best one in validation, of it"
    with pytest.raises(CheckpointError, match=told):
        train_run(Run.new(path, tiny()), resume=True)
    _remove(Run(path).files.checkpoint("best"))
    with pytest.raises(CheckpointError, match="the checkpoint was deleted"):
        train_run(Run.new(path, tiny()), resume=True)
    assert not (path / "result.json").exists()


def test_a_model_of_the_same_iteration_by_other_sums_is_replaced(tiny, tmp_path, judged) -> None:
    path, experiment = tmp_path / "run", tiny()
    judged([4.0, 3.0, 2.0, 1.0])
    train_run(Run.new(path, experiment))
    best = Run(path).files.checkpoint("best")
    found = Run(path).load_checkpoint("best")
    other = {key: tensor + 1 for key, tensor in found.tensors.items()}
    replace(found, tensors=other).save(best)
    result = Run(path).result
    (path / "result.json").unlink()
    again = train_run(Run.new(path, experiment), resume=True)
    assert result is not None
    assert again["test"] == result["test"]
    _assert_tested(path, experiment, again)


def test_models_of_a_training_whose_state_is_gone_are_forgotten(tiny, tmp_path, judged) -> None:
    path, experiment = tmp_path / "run", tiny("test.ensemble=3")
    judged([1.0, 2.0, 3.0, 4.0])
    _stopped(tiny, path, ensemble=3)
    for name in ("last", "previous"):
        Run(path).files.checkpoint(name).unlink()
    judged([4.0, 3.0, 2.0, 1.0])
    seen = []
    result = train_run(
        Run.new(path, experiment),
        resume=True,
        on_progress=lambda progress: (
            seen.append(sorted((path / "checkpoints").glob("*")))
            if progress.iteration == 1
            else None
        ),
    )
    assert seen == [[]]
    assert result["ensemble"]["iterations"] == [10, 15, 20]
    _assert_tested(path, experiment, result)
