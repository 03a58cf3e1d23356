"""Runs found in folders, and measured figures beside the published ones."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from alfa.cli.report import _curves
from alfa.paper import TABLES, Cell, collect, comparison_grid
from alfa.paper._cell_status import read_test
from alfa.paper._compare import verdict_of
from alfa.report.tables import Box

MAML = TABLES["table1"].entries["maml/conv4", "tieredimagenet-5w5s"]
ALFA = TABLES["table1"].entries["alfa+maml/conv4", "miniimagenet-5w5s"]
CUB = TABLES["table2"].entries["alfa+maml/conv4", "cub"]
SINE = TABLES["table8"].entries["maml", "5s-2x40"]
assert all(isinstance(cell, Cell) for cell in (MAML, ALFA, CUB, SINE))


@pytest.fixture
def box(tmp_path):
    """Return a function for the box of a cell, given the runs in the folder."""

    def find(cell: Cell) -> Box:
        table = TABLES[cell.table]
        grid = comparison_grid(table, collect([tmp_path], TABLES.values()), links_from=tmp_path)
        (place,) = [place for place, entry in table.entries.items() if entry is cell]
        row = [line.key for line in table.rows].index(place[0])
        return grid.rows[row].boxes[[line.key for line in table.columns].index(place[1])]

    return find


def test_a_run_in_any_folder_is_matched_by_its_experiment(pretend, box) -> None:
    pretend(MAML, 0.6748, at="some/where/my-run")
    assert box(MAML) == Box("67.48 +- 0.47", "67.48 +- 0.50", "within", link="some/where/my-run")


def test_the_figure_is_the_test_of_the_ensemble(pretend, tmp_path) -> None:
    pretend(MAML, 0.5)
    (run,) = collect([tmp_path], TABLES.values()).runs
    assert run.model == MAML.run
    assert read_test(run.path, MAML, run.result)["accuracy"] == 0.5


def test_seeds_are_averaged(pretend, box) -> None:
    for seed, value in enumerate((0.68, 0.67, 0.66)):
        pretend(MAML, value, seed=seed)
    found = box(MAML)
    assert found.measured == f"67.00 +- {math.sqrt(3) * 0.5 / 3:.2f}"
    assert found.notes == ("seeds 68.00, 67.00, 66.00",)


def test_the_longer_of_two_runs_of_a_seed_counts(pretend, box) -> None:
    pretend(MAML, 0.1, at="a", num_iterations=10)
    pretend(MAML, 0.6748, at="b")
    pretend(MAML, 0.2, at="c", num_iterations=20)
    assert box(MAML).measured == "67.48 +- 0.50"


def test_of_two_equal_runs_the_newer_counts(pretend, box) -> None:
    first, second = pretend(MAML, 0.6, at="b"), pretend(MAML, 0.61, at="a")
    for number, path in enumerate((second, first)):
        os.utime(path / "result.json", (number, number))
    assert box(MAML).measured == "60.00 +- 0.50"


def test_seeds_that_were_trained_for_less_are_left_out(pretend, box) -> None:
    pretend(MAML, 0.6748)
    pretend(MAML, 0.2, seed=1, num_iterations=500)
    pretend(MAML, 0.3, seed=2, num_iterations=500)
    found = box(MAML)
    assert (found.measured, found.verdict) == ("67.48 +- 0.50", "within")
    assert found.notes == ("2 shorter seeds omitted",)


def test_a_smaller_test_has_a_note(pretend, box) -> None:
    path = pretend(MAML, 0.6748)
    result = json.loads((path / "result.json").read_text())
    result["ensemble"] |= {"num_tasks": 50, "num_models": 2}
    (path / "result.json").write_text(json.dumps(result))
    assert box(MAML).notes == ("50 of 600 test tasks", "2 of 5 models")


def test_a_damaged_test_is_a_problem_and_the_rest_of_the_run_counts(pretend, tmp_path) -> None:
    path = pretend(ALFA, 0.6912, elsewhere={"cub": 0.5})
    (path / "tests/cub.json").write_text("[]")
    collection = collect([tmp_path], TABLES.values())
    grids = [
        comparison_grid(TABLES[n], collection, links_from=tmp_path) for n in ("table1", "table2")
    ]
    assert [grid.num_measured for grid in grids] == [1, 0]
    (problem,) = collection.problems
    assert "cub.json is damaged" in problem


def _changed(path: Path, **changes: Any) -> None:
    result = json.loads((path / "result.json").read_text())
    for key, value in changes.items():
        part, _, name = key.partition("_")
        if name:
            result[part] |= {name: value}
        else:
            result[part] = value
    (path / "result.json").write_text(json.dumps(result))


def test_a_result_of_one_model_and_task_is_shown(pretend, box) -> None:
    path = pretend(MAML, 0.6848)
    _changed(path, ensemble=None, test_accuracy_interval=None, test_num_tasks=1)
    found = box(MAML)
    assert (found.measured, found.verdict) == ("67.48", "")
    assert found.notes == ("1 of 600 test tasks", "1 of 5 models")


def test_a_result_without_its_figure_is_a_problem_of_its_own(pretend, tmp_path) -> None:
    bad = pretend(MAML, 0.6848)
    pretend(ALFA, 0.6912)
    _changed(bad, ensemble_accuracy=None)
    collection = collect([tmp_path], TABLES.values())
    grid = comparison_grid(TABLES["table1"], collection, links_from=tmp_path)
    assert grid.num_measured == 1
    (problem,) = collection.problems
    assert problem == f"{bad} has no test accuracy; evaluate the run again."


def test_curves_of_one_seed_have_different_names(pretend, tmp_path) -> None:
    for name in ("first", "second"):
        pretend(MAML, at=name)
    drawn = str(_curves(TABLES["table1"], collect([tmp_path], TABLES.values())))
    assert "maml/conv4, seed 0<" in drawn
    assert "maml/conv4, seed 0 (second)<" in drawn


def test_a_figure_that_is_not_finite_has_no_verdict(pretend, box) -> None:
    pretend(MAML, float("nan"), float("nan"))
    assert box(MAML).verdict == ""


def test_a_shorter_training_is_not_compared(pretend, box) -> None:
    pretend(MAML, 0.6748, num_iterations=1500)
    found = box(MAML)
    assert (found.verdict, found.notes) == ("shorter", ("1,500 of 50,000 iterations",))


def test_a_longer_training_has_a_note(pretend, box) -> None:
    pretend(MAML, 0.6748, num_iterations=200_000)
    found = box(MAML)
    assert (found.verdict, found.notes) == ("within", ("200,000 instead of 50,000 iterations",))


def test_a_run_with_nothing_to_train_is_not_shorter(pretend, box) -> None:
    cell = TABLES["table1"].entries["random/conv4", "miniimagenet-5w5s"]
    pretend(cell, 0.3109, num_iterations=0, num_meta_parameters=0)
    assert box(cell).verdict == "within"


def test_a_quick_run_shows_no_figure(pretend, box) -> None:
    pretend(MAML, 0.9, quick=True)
    assert box(MAML) == Box("67.48 +- 0.47", "quick", "quick", link=f"{MAML.run}/seed-0")
    pretend(MAML, 0.6748, at="real")
    assert box(MAML).measured == "67.48 +- 0.50"


@pytest.mark.parametrize("mark", [[], {}, 1, {"run": "a"}, {"run": "a", "is_quick": "no"}])
def test_a_run_that_may_be_quick_is_not_a_result(pretend, tmp_path, mark) -> None:
    """A damaged mark makes a run quick, unless it is an experiment of the paper."""
    ours, other = pretend(MAML, quick=True), pretend(ALFA, quick=True)
    text = (other / "config.toml").read_text()
    (other / "config.toml").write_text(text.replace("num_query = 15", "num_query = 1"))
    for path in (ours, other):
        _changed(path, paper=mark)
    collection = collect([tmp_path], TABLES.values())
    assert {run.path: run.is_quick for run in collection.runs} == {ours: False, other: True}
    assert [problem.partition(": ")[0] for problem in collection.problems] == [
        f"{path / 'result.json'} is damaged" for path in sorted((ours, other))
    ]


def test_other_datasets_are_read_from_the_same_run(pretend, box) -> None:
    pretend(ALFA, 0.6912, elsewhere={"cub": 0.5835})
    assert box(ALFA).measured == "69.12 +- 0.50"
    assert box(CUB).measured == "58.35 +- 0.50"
    # It is also the last row of Table 5, and the last of the steps in Table 7.
    assert box(TABLES["table5"].entries["weights+gradients", "miniimagenet-5w5s"]).measured


def test_an_incomplete_run_is_not_a_measurement(pretend, box, tmp_path) -> None:
    pretend(MAML, complete=False)
    assert box(MAML) == Box("67.48 +- 0.47")
    (run,) = collect([tmp_path], TABLES.values()).runs
    assert run.result is None


def test_a_run_outside_the_paper_has_no_model(pretend, tmp_path) -> None:
    path = pretend(MAML)
    text = (path / "config.toml").read_text()
    (path / "config.toml").write_text(text.replace("learning_rate = 0.01", "learning_rate = 0.02"))
    (run,) = collect([tmp_path], TABLES.values()).runs
    assert run.model is None


@pytest.mark.parametrize("name", ["config.toml", "result.json"])
def test_a_damaged_folder_is_named_and_the_others_are_read(pretend, tmp_path, name: str) -> None:
    pretend(MAML)
    bad = pretend(ALFA)
    (bad / name).write_text("{")
    collection = collect([tmp_path, tmp_path], TABLES.values())
    assert [run.model for run in collection.runs] == [MAML.run]
    (problem,) = collection.problems
    assert problem.startswith(f"{bad}: ")
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("cell", "value", "interval", "verdict"),
    [
        # The paper's plus-minus is not an interval, so it is assumed to be as wide as ours.
        (MAML, 67.48 + 0.70, 0.5, "within"),
        (MAML, 67.48 + 0.72, 0.5, "above"),
        (MAML, 67.48 - 0.72, 0.5, "below"),
        # The plus-minus of Table 8 is an interval.
        (SINE, 1.24 - 0.22, 0.1, "within"),
        (SINE, 1.24 - 0.24, 0.1, "below"),
        (MAML, 67.48, None, ""),
    ],
)
def test_verdicts_take_both_intervals_into_account(cell, value, interval, verdict) -> None:
    assert verdict_of(cell, value, interval) == verdict


def test_squared_errors_have_three_digits(pretend, box) -> None:
    pretend(SINE, 0.6231, 0.0304)
    assert box(SINE).measured == "0.623 +- 0.030"


def test_curves_show_each_run_once_and_no_quick_runs(pretend, tmp_path) -> None:
    pretend(ALFA)
    pretend(MAML, quick=True)
    collection = collect([tmp_path], TABLES.values())
    assert [run.model for run in collection.runs_with_curves(TABLES["table1"])] == [ALFA.run]
    assert [run.model for run in collection.runs_with_curves(TABLES["tableE"])] == [ALFA.run]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("table1", "70.00 +- 0.46 in Table 1 is the accuracy with the standard deviation of a"),
        (
            "tableC",
            "In the authors' own rows, the paper's plus-minus is not an interval of the mean",
        ),
        ("table2", "its plus-minus the standard deviation of three seeds; here it is treated as"),
        ("tableD", "The paper's supplement calls its plus-minus the standard deviation"),
        ("table8", "The paper's plus-minus is a 95 % confidence interval."),
    ],
)
def test_a_table_explains_the_papers_plus_minus(tmp_path, name: str, sentence: str) -> None:
    grid = comparison_grid(TABLES[name], collect([tmp_path], ()), links_from=tmp_path)
    assert sentence in grid.plus_minus


def test_a_note_states_the_pretrained_backbone_once(tmp_path) -> None:
    grid = comparison_grid(TABLES["table3"], collect([tmp_path], ()), links_from=tmp_path)
    assert len(grid.notes) == 1
    assert "start from one backbone" in grid.notes[0]
    assert all(box.published for box in grid.boxes)
    repeated = comparison_grid(TABLES["tableD"], collect([tmp_path], ()), links_from=tmp_path)
    assert repeated.notes == grid.notes
