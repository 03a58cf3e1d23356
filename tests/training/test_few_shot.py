"""Training on images: accuracy, the best epochs, and the mean of their outputs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from alfa.build._build import build_learner, build_tasks
from alfa.config import Experiment, parse_experiment
from alfa.data import FewShot, ImageSet
from alfa.errors import ConfigError, DataError
from alfa.evaluation import evaluate, evaluate_run
from alfa.runs import Epoch, Run, TrainingProgress, match_tasks
from alfa.training import Progress, train_run

NUM_MEMBERS = 3


@pytest.fixture
def experiment(spots):
    """Classes that differ in the position of bright spots, which a few steps can learn."""

    def make(**outer):
        return parse_experiment(
            {
                "tasks": {
                    "name": "images",
                    "dataset": "spots",
                    "shot": 2,
                    "num_query": 3,
                    "way": 3,
                },
                "model": {"name": "conv4", "filters": 4, "num_blocks": 2},
                "rule": {"name": "alfa"},
                "inner": {"num_steps": 2},
                "outer": {
                    "num_iterations": 8,
                    "num_tasks": 2,
                    "validate_every": 1,
                    "num_val_tasks": 5,
                    **outer,
                },
                "test": {"num_tasks": 6, "ensemble": NUM_MEMBERS},
            }
        )

    return make


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> dict[str, Path]:
    return {"path": tmp_path_factory.mktemp("trained") / "run"}


@pytest.fixture
def run(trained, experiment) -> Run:
    if not trained["path"].exists():
        train_run(Run.new(trained["path"], experiment()))
    return Run(trained["path"])


def members_of(run: Run) -> list[int]:
    return sorted(int(p.stem.split("-")[1]) for p in (run.path / "checkpoints").glob("epoch-*"))


def test_the_best_epochs_are_those_of_the_highest_accuracy_and_of_equals_the_first(run) -> None:
    records = sorted(run.metrics, key=lambda r: (-r["val_accuracy"], r["iteration"]))
    best = [record["iteration"] for record in records[:NUM_MEMBERS]]
    result = run.result
    assert members_of(run) == sorted(best) == result["ensemble"]["iterations"]
    assert result["best_iteration"] == best[0]
    assert result["val_accuracy"] == records[0]["val_accuracy"]
    assert result["val_loss"] == records[0]["val_loss"]


def test_the_result_holds_the_best_model_and_the_ensemble(run, experiment) -> None:
    result = run.result
    assert (result["test"]["num_models"], result["ensemble"]["num_models"]) == (1, NUM_MEMBERS)
    for found in (result["test"], result["ensemble"]):
        assert 0 <= found["accuracy"] <= 1
        assert found["accuracy_interval"] > 0
        assert (found["num_tasks"], found["batch_norm"]) == (6, "transductive")
    learner, tasks = _built(experiment())
    run.load_checkpoint("best").restore(learner)
    assert evaluate(learner, tasks, num_tasks=6).as_dict() == result["test"]


def test_the_figures_of_single_tasks_are_their_accuracies(run, experiment) -> None:
    learner, tasks = _built(experiment())
    run.load_checkpoint("best").restore(learner)
    episode = tasks.episode(0, num_tasks=6, split="test")
    right = learner(episode, order="none").outputs.argmax(2) == episode.query_y
    found = evaluate(learner, tasks, num_tasks=6)
    assert found.per_task == pytest.approx(right.double().mean(1).tolist())
    assert np.mean(found.per_task) == pytest.approx(found.accuracy)


def test_the_ensemble_is_the_mean_of_the_outputs(run, experiment) -> None:
    learners, tasks = run.learners("ensemble"), run.tasks()
    episode = tasks.episode(0, num_tasks=6, split="test")
    outputs = [learner(episode, order="none").outputs for learner in learners]
    mean = torch.stack(outputs).mean(0)
    accuracy = (mean.argmax(2) == episode.query_y).double().mean(1)
    found = evaluate(learners, tasks, num_tasks=6)
    learner = learners[0]
    assert found.accuracy == pytest.approx(float(accuracy.mean()))
    assert found.accuracy_interval == pytest.approx(1.96 * float(accuracy.std()) / 6**0.5)
    assert found.loss == pytest.approx(float(learner.loss(mean, episode.query_y).mean()), rel=1e-5)


def of_members(experiment: Experiment, count: int) -> Experiment:
    test = experiment.test.model_copy(update={"ensemble": count})
    return experiment.model_copy(update={"test": test})


def test_an_ensemble_is_as_large_as_was_asked_for_last(run, experiment, tmp_path) -> None:
    path = tmp_path / "run"
    shutil.copytree(run.path, path)
    before = run.result
    smaller = of_members(experiment(), 2)
    result = train_run(Run.new(path, smaller), resume=True)
    assert (result["ensemble"]["num_models"], len(result["ensemble"]["iterations"])) == (2, 2)
    assert {*result["ensemble"]["iterations"]} < {*before["ensemble"]["iterations"]}
    assert result["best_iteration"] in result["ensemble"]["iterations"]
    assert len(Run(path).load_models("ensemble")) == 2
    alone = of_members(experiment(), 1)
    assert "ensemble" not in train_run(Run.new(path, alone), resume=True)


def test_an_ensemble_lists_the_models_that_it_has(experiment, tmp_path) -> None:
    first = of_members(experiment(num_iterations=2), 1)
    train_run(Run.new(tmp_path / "run", first))
    result = train_run(Run.new(tmp_path / "run", experiment()), resume=True)
    assert result["ensemble"]["num_models"] == len(result["ensemble"]["iterations"])
    # The first training stored its best model only once; the model is now also a member.
    unbroken = train_run(Run.new(tmp_path / "unbroken", experiment()))
    for key in ("best_iteration", "ensemble"):
        assert result[key] == unbroken[key]


def _built(experiment):
    tasks = build_tasks(experiment)
    return build_learner(experiment, tasks), tasks


@pytest.mark.parametrize("stop_at", [1, 4, 7])
@pytest.mark.parametrize("where", ["in validation", "after it"])
def test_a_run_that_was_stopped_keeps_the_same_members(
    run, experiment, tmp_path, stop_at, where
) -> None:
    def stop(progress: Progress) -> None:
        at_work = progress.work is not None and progress.work.done == 5
        if progress.iteration == stop_at and at_work == (where == "in validation"):
            raise KeyboardInterrupt

    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_run(Run.new(path, experiment()), on_progress=stop)
    # As if the process was killed before it removed an outdated member.
    Run(path).files.member(777777).parent.mkdir(exist_ok=True, parents=True)
    Run(path).files.member(777777).write_bytes(b"")
    train_run(Run.new(path, experiment()), resume=True)
    assert (path / "metrics.jsonl").read_text() == (run.path / "metrics.jsonl").read_text()
    resumed, expected = Run(path).result, run.result
    for key in ("test", "ensemble", "best_iteration", "val_accuracy"):
        assert resumed[key] == expected[key]
    assert members_of(Run(path)) == members_of(run)


def test_a_dataset_without_enough_for_every_split_is_refused_before_training(
    experiment, tmp_path
) -> None:
    tasks = {**experiment().tasks.model_dump(), "way": 5}
    large = parse_experiment({"tasks": tasks, "model": {"name": "conv4", "num_blocks": 2}})
    with pytest.raises(DataError, match=r"val has 4 classes.*; test has 4 classes"):
        train_run(Run.new(tmp_path / "run", large))
    assert not (tmp_path / "run").exists()


def test_one_model_needs_no_copies(experiment, tmp_path) -> None:
    alone = experiment().model_copy(
        update={"test": experiment().test.model_copy(update={"ensemble": 1})}
    )
    result = train_run(Run.new(tmp_path / "run", alone))
    assert "ensemble" not in result
    assert members_of(Run(tmp_path / "run")) == []
    assert alone.fingerprint() == experiment().fingerprint()


def test_the_work_beside_the_iterations_is_shown(experiment, tmp_path) -> None:
    seen = []
    train_run(
        Run.new(tmp_path / "run", experiment(num_iterations=2)),
        on_progress=lambda progress: progress.work and seen.append(progress.work),
    )
    assert {work.what for work in seen} == {
        "validating",
        "testing the best model",
        "testing 2 models",
    }
    for what in {work.what for work in seen}:
        group = [work for work in seen if work.what == what]
        assert group[-1].done == group[-1].total


def test_of_equal_epochs_the_earlier_stays() -> None:
    progress = TrainingProgress(iteration=0)
    scores = [0.2, 0.5, 0.5, 0.1, 0.6, 0.5]
    epochs = [Epoch(iteration, score, -score) for iteration, score in enumerate(scores)]
    firsts = [progress.add_epoch(epoch, num_members=3) for epoch in epochs]
    assert progress.best_iterations == [4, 1, 2]
    assert firsts == [True, True, False, False, True, False]
    assert TrainingProgress.model_validate_json(progress.model_dump_json()) == progress


def images(shape: tuple[int, int, int], num_classes: int = 4) -> ImageSet:
    rng = np.random.default_rng(0)
    arrays = {f"c{c}": rng.integers(0, 256, (9, *shape), np.uint8) for c in range(num_classes)}
    return ImageSet.of_arrays("other", {"test": arrays})


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 12, 12)])
def test_a_model_is_judged_on_images_of_another_kind(run, experiment, shape) -> None:
    learner, own = _built(experiment())
    tasks = match_tasks(FewShot(images(shape), way=3, shot=1, num_query=2), own.signature())
    assert tuple(tasks.input_shape) == tuple(own.input_shape)
    assert 0 <= evaluate(learner, tasks, num_tasks=2).accuracy <= 1


def test_fewer_classes_than_outputs_will_do_but_more_will_not(run, experiment) -> None:
    _, own = _built(experiment())
    few = FewShot(images((3, 8, 8)), way=2, shot=1, num_query=2)
    assert match_tasks(few, own.signature()).num_outputs == 2
    with pytest.raises(ConfigError, match=r"3 outputs, but these tasks have .* with 4"):
        match_tasks(FewShot(images((3, 8, 8)), way=4, shot=1, num_query=2), own.signature())


def test_a_head_of_any_size_is_judged_on_more_classes_than_it_was_trained_on(
    experiment, tmp_path
) -> None:
    content = experiment(num_iterations=2).model_dump() | {"init": {"name": "prototype-head"}}
    content["inner"]["batch_norm"] = "inductive"
    train_run(Run.new(tmp_path / "run", parse_experiment(content)))
    few = evaluate_run(Run(tmp_path / "run"), num_tasks=20)
    many = evaluate_run(Run(tmp_path / "run"), overrides=["tasks.way=4"], num_tasks=20)
    # Chance is a third and a quarter; the spots make the classes easy to separate.
    assert few.accuracy > 0.5
    assert many.accuracy > 0.5
