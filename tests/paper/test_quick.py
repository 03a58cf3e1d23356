"""Quick runs of every kind of cell, which are never results."""

from __future__ import annotations

from pathlib import Path

import pytest

from alfa.paper import TABLES, Cell, State, cell_status, measurement, plan_jobs, reproduce
from alfa.paper._job import on_strokes

CELLS = [cell for table in TABLES.values() for cell in table.cells]


def kind(cell: Cell) -> tuple[str, str, str, str]:
    """Return the init, the rule, the backbone, and the head."""
    experiment = cell.experiment
    head = "linear" if experiment.head is None else experiment.head.name
    return experiment.init.name, experiment.rule.name, experiment.model.name, head


# The cell with the fewest images of each kind.
KINDS = {kind(cell): cell for cell in sorted(CELLS, key=lambda c: "5w1s" not in c.id, reverse=True)}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all tests, so that jobs share pretrained backbones."""
    return tmp_path_factory.mktemp("paper")


@pytest.mark.parametrize("cell", KINDS.values(), ids=lambda cell: "-".join(kind(cell)))
def test_a_cell_of_each_kind_runs(cell: Cell, out: Path, smaller) -> None:
    (job,) = map(smaller, plan_jobs([cell], out, quick=True))
    outcome = reproduce([job])
    assert (outcome.done, outcome.failed) == ([job.name], {})
    assert cell_status(job, cell) == (State.DONE, "")
    found = measurement(job, cell)
    assert found is not None
    assert found.is_quick
    is_frozen = kind(cell)[3] == "logistic"
    assert found.trains == (kind(cell)[:2] != ("fixed", "sgd") and not is_frozen)


def test_all_kinds_are_tested() -> None:
    assert len(KINDS) == 31


def test_models_that_differ_only_in_images_run_once(tmp_path) -> None:
    jobs = plan_jobs(CELLS, tmp_path, quick=True)
    assert sorted(cell.id for job in jobs for cell in job.cells) == sorted(c.id for c in CELLS)
    assert len(jobs) == 100
    for job in jobs:
        # Each cell plans the same job.
        for cell in job.cells[1:3]:
            (alone,) = plan_jobs([cell], tmp_path, quick=True)
            assert (alone.path, alone.experiment) == (job.path, job.experiment)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("cifar-fs-5w1s/maml/resnet12", "strokes-5w1s/maml/resnet12"),
        ("miniimagenet-20w5s/alfa+maml/conv4", "strokes-20w5s/alfa+maml/conv4"),
        ("sinusoid-5s/maml/mlp-2x40", "sinusoid-5s/maml/mlp-2x40"),
        ("ilsvrc-varied/fo-maml/resnet18", "strokes-varied/fo-maml/resnet18"),
        ("ilsvrc-varied/resnet18", "strokes-varied/resnet18"),
    ],
)
def test_runs_on_generated_characters_are_renamed(run, expected) -> None:
    assert on_strokes(run) == expected
