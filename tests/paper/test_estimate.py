"""Costs of jobs, from the remaining work and the speed of this machine."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from alfa.bench.speed import Speed
from alfa.paper import TABLES, Cell, estimate, plan_jobs
from alfa.paper import _estimate as module
from alfa.paper._estimate import cost_of, measure_job
from alfa.runs import RunFiles

MAML = TABLES["table1"].entries["maml/conv4", "miniimagenet-5w5s"]
CUB = TABLES["table2"].entries["maml/conv4", "cub"]
RANDOM = TABLES["table1"].entries["random/conv4", "miniimagenet-5w5s"]
SINE = TABLES["table8"].entries["maml", "5s-2x40"]
VARIED = TABLES["table3"].entries["ilsvrc", "alfa+fo-maml"]
PROTONET = TABLES["tableC"].entries["protonet/conv4-64", "miniimagenet-5w5s"]
SPEED = Speed(iteration=2.0, task=0.5, memory=7)
assert all(isinstance(cell, Cell) for cell in (MAML, CUB, RANDOM, SINE, VARIED, PROTONET))


@pytest.fixture
def job(tmp_path):
    def make(*cells: Cell, num_iterations: int | None = None):
        (found,) = plan_jobs(cells or [MAML], tmp_path, num_iterations=num_iterations)
        return found

    return make


def test_a_whole_run_is_training_validations_and_tests(job) -> None:
    cost = cost_of(job(), SPEED)
    # 100 epochs of 500 iterations, 600 validation tasks each; the best model and five together.
    assert cost.seconds == 50_000 * 2.0 + 100 * 600 * 0.5 + (1 + 5) * 600 * 0.5
    assert (cost.memory, cost.trains) == (7, True)


def test_a_test_on_another_dataset_takes_all_models(job) -> None:
    more = cost_of(job(MAML, CUB), SPEED).seconds - cost_of(job(MAML), SPEED).seconds
    assert more == 5 * 600 * 0.5


def test_a_short_run_has_fewer_models_to_test(job) -> None:
    cost = cost_of(job(num_iterations=1000), SPEED)
    assert cost.seconds == 1000 * 2.0 + 2 * 600 * 0.5 + (1 + 2) * 600 * 0.5


def test_a_run_with_nothing_to_train_is_validated_and_tested_once(job) -> None:
    cost = cost_of(job(RANDOM), Speed(0.0, 0.5, 0))
    assert cost.seconds == 600 * 0.5 + 600 * 0.5
    assert not cost.trains


def test_completed_work_costs_nothing(job, pretend) -> None:
    at = f"runs/{MAML.run}/seed-0"
    pretend(MAML, at=at, complete=False)
    # 1,000 iterations and two validations are done.
    expected = 49_000 * 2.0 + 98 * 600 * 0.5 + (1 + 5) * 600 * 0.5
    assert cost_of(job(), SPEED).seconds == expected
    pretend(MAML, at=at)
    assert cost_of(job(MAML, CUB), SPEED).seconds == 5 * 600 * 0.5
    # A longer training than requested does not reduce the cost of tests.
    assert cost_of(job(MAML, CUB, num_iterations=500), SPEED).seconds == 600 * 0.5


def test_jobs_that_differ_only_in_data_are_measured_once_and_saved(tmp_path, monkeypatch) -> None:
    measured = []
    monkeypatch.setattr(module, "measure_job", lambda job, device: measured.append(job) or SPEED)
    cells = [
        TABLES["table1"].entries["maml/conv4", f"{d}imagenet-5w5s"] for d in ("mini", "tiered")
    ]
    jobs = plan_jobs(cells, tmp_path, num_seeds=2)
    told = []
    costs = estimate(jobs, tmp_path, on_measured=lambda *args: told.append(args))
    assert set(costs) == {job.name for job in jobs}
    assert len(measured) == 1
    assert told[-1] == (4, 4)
    assert estimate(jobs, tmp_path) == costs
    assert len(measured) == 1
    # Another rule has another speed, and a damaged file is replaced.
    other = plan_jobs([TABLES["table1"].entries["alfa+maml/conv4", "miniimagenet-5w5s"]], tmp_path)
    estimate(other, tmp_path)
    assert len(measured) == 2
    (tmp_path / "speeds.json").write_text("{")
    estimate(other, tmp_path)
    assert len(measured) == 3
    assert len(json.loads((tmp_path / "speeds.json").read_text())) == 1


def test_completed_jobs_are_not_estimated(pretend, tmp_path, monkeypatch) -> None:
    pretend(MAML, at=f"runs/{MAML.run}/seed-0")
    monkeypatch.setattr(module, "measure_job", lambda *a, **o: pytest.fail("measured"))
    assert estimate(plan_jobs([MAML], tmp_path), tmp_path) == {}


def test_a_backbone_that_jobs_share_counts_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "measure_job", lambda job, device: SPEED)
    measured = []
    monkeypatch.setattr(
        module,
        "pretraining_seconds",
        lambda model, size, num_images, device: measured.append(num_images) or 0.25,
    )
    jobs = plan_jobs(TABLES["table3"].cells, tmp_path)
    costs = [estimate(jobs, tmp_path)[job.name] for job in jobs]
    # A quarter of a second for each image of 90 epochs.
    expected = 0.25 * 90 * 712 * 1_300
    assert [cost.seconds > expected for cost in costs] == [True, False, False, False]
    assert [cost.pretraining for cost in costs] == [expected, 0, 0, 0]
    # The second estimate reuses the measurement of one image.
    assert measured == [1]
    weights = jobs[0].pretraining / "backbone.safetensors"
    weights.parent.mkdir(parents=True)
    weights.touch()
    assert estimate(jobs, tmp_path)[jobs[0].name].seconds < expected


@pytest.mark.parametrize(
    ("cell", "num_images"),
    [
        # 100 epochs of 64 classes of 600 images
        (TABLES["table1"].entries["leo/wrn-28-10", "miniimagenet-5w5s"], 100 * 64 * 600),
        (TABLES["table1"].entries["leo/wrn-28-10", "tieredimagenet-5w5s"], 100 * 448_695),
        # Distillation repeats the training twice.
        (TABLES["tableD"].entries["ilsvrc", "rfs-distill"], 3 * 100 * 712 * 1_300),
    ],
)
def test_a_run_that_pretrains_its_own_backbone_takes_longer(
    cell, num_images, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(module, "measure_job", lambda job, device: SPEED)
    speed = replace(SPEED, iteration=0.5)
    monkeypatch.setattr(module, "measure_pretraining", lambda job, device: speed)
    jobs = plan_jobs([cell], tmp_path)
    (cost,) = estimate(jobs, tmp_path).values()
    assert cost.pretraining == 0.5 * num_images
    assert cost.seconds == cost.pretraining + cost_of(jobs[0], SPEED).seconds
    # A run with a checkpoint has a backbone.
    checkpoint = RunFiles(jobs[0].path).checkpoint("last")
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    (cost,) = estimate(jobs, tmp_path).values()
    assert cost.pretraining == 0


@pytest.mark.parametrize("cell", [MAML, SINE, VARIED, PROTONET], ids=lambda cell: cell.id)
def test_a_job_is_measured_without_its_data(cell, tmp_path, monkeypatch) -> None:
    """Random images have the size of the data, and options come from the experiment."""
    seen = {}

    def measure(learner, tasks, **options):
        seen.update(options, learner=learner, tasks=tasks)
        return SPEED

    monkeypatch.setattr(module, "measure_speed", measure)
    (job,) = plan_jobs([cell], tmp_path)
    assert measure_job(job) == SPEED
    experiment, tasks = job.experiment, seen["tasks"]
    assert seen["num_tasks"] == experiment.outer.num_tasks
    assert seen["num_test_steps"] == experiment.inner.num_test_steps
    assert seen["max_gradient_norm"] == experiment.outer.max_gradient_norm
    assert seen["learner"].num_steps == experiment.inner.num_steps
    if cell is SINE:
        assert tasks.num_support == 5
    else:
        assert tasks.input_shape == (3, *2 * [experiment.tasks.options["size"]])
    if cell is MAML:
        assert (tasks.way, tasks.shot, tasks.num_query) == (5, 5, 15)
        assert seen["test_tasks"] is tasks
    if cell is PROTONET:
        assert (tasks.way, seen["test_tasks"].way) == (20, 5)
    assert (seen["sizes"] is not None) == (cell is VARIED)


def test_sizes_of_varying_tasks_match_imagenet(tmp_path) -> None:
    (job,) = plan_jobs([VARIED], tmp_path)
    sizes = module._varied_sizes(job.experiment)
    # Draws from ImageNet's hierarchy have hundreds of support images, and ten queries per class.
    assert 300 < sizes.support < 450
    assert 150 < sizes.query < 250
    # 500 support images, and ten queries of each of 50 classes.
    assert sizes.largest == 500 + 50 * 10


@pytest.mark.parametrize(
    "cell", [VARIED, TABLES["table1"].entries["leo/wrn-28-10", "miniimagenet-5w1s"]]
)
def test_the_cost_of_a_quick_backbone_matches_its_number_of_images(
    cell, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(module, "measure_job", lambda job, device: SPEED)
    monkeypatch.setattr(
        module, "pretraining_seconds", lambda model, size, num_images, device: 2.0 * num_images
    )
    (cost,) = estimate(plan_jobs([cell], tmp_path, quick=True), tmp_path).values()
    # One batch of four.
    assert cost.pretraining == 8
