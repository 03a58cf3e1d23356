"""Runs of cells: sharing, resuming, and failures."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from alfa.config import Part
from alfa.errors import ConfigError, DataError, Stopped
from alfa.paper import (
    TABLES,
    Cell,
    Job,
    JobResult,
    State,
    cell_status,
    measurement,
    plan_jobs,
    reproduce,
    select,
)
from alfa.paper import _reproduce as module
from alfa.runs import Run
from alfa.training import train_run

SINE = TABLES["table8"].entries["maml", "5s-2x40"]
ACROSS = TABLES["table2"].entries["maml/conv4", "cub"]
assert isinstance(SINE, Cell)
assert isinstance(ACROSS, Cell)


@pytest.fixture
def quick(tmp_path, smaller) -> Callable[..., Job]:
    """Return a function that plans the quick job of some cells."""

    def make(*cells: Cell) -> Job:
        (job,) = plan_jobs(cells or [SINE], tmp_path, quick=True)
        return smaller(job)

    return make


@pytest.fixture(scope="module")
def across(tmp_path_factory: pytest.TempPathFactory, smaller) -> Job:
    """A completed job, which `done` copies."""
    (job,) = plan_jobs([ACROSS], tmp_path_factory.mktemp("across"), quick=True)
    job = smaller(job)
    assert reproduce([job]).done == [job.name]
    return job


@pytest.fixture
def done(across: Job, tmp_path) -> Job:
    """A completed job of a cell with another test dataset."""
    path = shutil.copytree(across.path, tmp_path / across.name)
    return replace(across, path=path)


def longer(job: Job, num_iterations: int) -> Job:
    outer = job.experiment.outer.model_copy(update={"num_iterations": num_iterations})
    return replace(job, experiment=job.experiment.model_copy(update={"outer": outer}))


def other(job: Job) -> Job:
    return replace(job, experiment=job.experiment.model_copy(update={"seed": 7}))


# --- plans


def test_cells_that_share_a_model_share_a_job(tmp_path) -> None:
    run = "miniimagenet-5w5s/alfa+maml/conv4"
    cells = [cell for table in TABLES.values() for cell in table.cells if cell.run == run]
    (job,) = plan_jobs(cells, tmp_path)
    # Tables 1, 2, 5, 7 and, on three datasets, E.
    assert sorted(cell.table for cell in job.cells) == [
        *("table1", "table2", "table5", "table7"),
        *("tableE", "tableE", "tableE"),
    ]
    assert job.path == tmp_path / "runs" / run / "seed-0"


def test_every_seed_is_a_separate_job(tmp_path) -> None:
    jobs = plan_jobs([SINE, ACROSS], tmp_path, num_seeds=2, num_iterations=9)
    assert [job.experiment.seed for job in jobs] == [0, 0, 1, 1]
    assert {job.experiment.outer.num_iterations for job in jobs} == {9}
    assert len({job.path for job in jobs}) == 4


@pytest.mark.parametrize("cell", [c for t in TABLES.values() for c in t.cells][::7])
def test_quick_shrinks_images_queries_tasks_and_iterations_only(cell: Cell, tmp_path) -> None:
    (job,) = plan_jobs([cell], tmp_path, quick=True)
    full, small = cell.experiment, job.experiment
    # The file of the pretrained backbone differs.
    models = [
        Part(**{k: v for k, v in experiment.model.model_dump().items() if k != "weights"})
        for experiment in (small, full)
    ]
    assert (models[0], small.init, small.rule, small.inner) == (
        models[1],
        full.init,
        full.rule,
        full.inner,
    )
    kept = ("way", "shot", "num_support", "min_way", "max_way")
    assert {k: v for k, v in small.tasks.options.items() if k in kept} == {
        k: v for k, v in full.tasks.options.items() if k in kept
    }
    assert "quick" in job.path.relative_to(tmp_path).parts


def test_quick_uses_real_images_if_they_are_prepared(monkeypatch, tmp_path) -> None:
    (before,) = plan_jobs([ACROSS], tmp_path, quick=True)
    monkeypatch.setattr("alfa.paper._job.prepared", lambda: {"miniimagenet": [84], "cub": [32]})
    (job,) = plan_jobs([ACROSS], tmp_path, quick=True)
    assert job.experiment.tasks.options["dataset"] == "miniimagenet"
    assert job.experiment.tasks.options["seen_size"] == 16
    # Earlier runs on generated images are kept.
    assert job.path != before.path
    # Images of another size do not count as prepared.
    assert job.test_dataset(ACROSS) == ("strokes", None)
    monkeypatch.setattr("alfa.paper._job.prepared", lambda: {"cub": [32, 84]})
    assert job.test_dataset(ACROSS) == ("cub", 84)


TABLE_1 = [TABLES["table1"]]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({}, 56),
        ({"rows": ["alfa+maml"]}, 8),
        ({"rows": ["alfa+maml/conv4"]}, 4),
        ({"rows": ["alfa+maml", "maml"], "shots": ["5"], "dataset": ["miniimagenet"]}, 4),
        ({"backbone": ["conv4"], "dataset": ["tieredimagenet"]}, 12),
        ({"rows": ["leo"]}, 4),
    ],
)
def test_filters_select_cells(wanted: dict, count: int) -> None:
    assert len(select(TABLE_1, wanted)) == count


@pytest.mark.parametrize(
    ("table", "wanted", "count"),
    [
        ("tableE", {"dataset": ["omniglot"]}, 5),
        ("table8", {"shots": ["10"]}, 4),
        ("table6", {"rows": ["maml-alpha-per-step"]}, 2),
        ("table6", {"rows": ["adaptive"]}, 8),
        ("tableA", {"rows": ["multi"]}, 5),
        ("tableC", {"rows": ["protonet"]}, 4),
        ("tableD", {"rows": ["rfs-distill"]}, 10),
    ],
)
def test_filters_select_rows_and_columns(table: str, wanted: dict, count: int) -> None:
    assert len(select([TABLES[table]], wanted)) == count


@pytest.mark.parametrize(
    ("tables", "wanted", "sentence"),
    [
        (["table1"], {"rows": ["maml", "alfa+mamml"]}, "Did you mean 'alfa+maml'?"),
        (["table1"], {"shots": ["3"]}, "no cell of table1 has --shots 3; choose from 1, 5."),
        (["table3"], {"dataset": ["cub"]}, "choose from md-ilsvrc, md-omniglot"),
        (["table3"], {"shots": ["3"]}, "no cell of table3 has --shots 3; omit it."),
        (["tableC"], {"rows": ["adaresnet"]}, "no cell of tableC has --rows adaresnet"),
        (
            ["table2", "table4"],
            {"dataset": ["cub"], "shots": ["1"]},
            "no cell of table2, table4 matches all of --dataset cub, --shots 1",
        ),
    ],
)
def test_a_filter_without_cells_is_an_error(tables: list[str], wanted: dict, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        select([TABLES[name] for name in tables], wanted)
    assert sentence in str(caught.value)


# --- states


def test_a_cell_that_was_run_is_done_and_measured(quick) -> None:
    job = quick()
    assert cell_status(job, SINE) == (State.NOT_RUN, "")
    assert measurement(job, SINE) is None
    assert reproduce([job]) == JobResult(done=[job.name])
    assert cell_status(job, SINE) == (State.DONE, "")
    found = measurement(job, SINE)
    assert found is not None
    result = Run(job.path).result
    assert result is not None
    assert (found.value, found.num_iterations, found.is_quick) == (result["test"]["loss"], 2, True)
    assert result["paper"] == {"run": job.run, "is_quick": True}
    before = (job.path / "result.json").stat().st_mtime_ns
    assert reproduce([job]) == JobResult(skipped=[job.name])
    assert (job.path / "result.json").stat().st_mtime_ns == before


def test_a_shorter_run_is_trained_further_to_the_same_figures(quick, tmp_path) -> None:
    job = quick()
    reproduce([job])
    more = longer(job, 4)
    assert cell_status(more, SINE) == (State.SHORTER, "2 of 4 iterations")
    assert measurement(more, SINE).num_iterations == 2
    assert reproduce([more]).done == [job.name]
    assert cell_status(more, SINE)[0] == State.DONE
    # A longer training is sufficient.
    assert cell_status(job, SINE)[0] == State.DONE
    unbroken = replace(more, path=tmp_path / "unbroken")
    reproduce([unbroken])
    assert measurement(more, SINE).value == measurement(unbroken, SINE).value


def test_a_run_that_is_trained_further_keeps_its_earlier_result(quick) -> None:
    job = quick()
    reproduce([job])
    reproduce([longer(job, 4)])
    earlier = json.loads((job.path / "result-2.json").read_text())
    assert earlier["num_iterations"] == 2


def test_a_stopped_run_with_more_iterations_than_requested_is_tested_unchanged(quick) -> None:
    job = quick()
    reproduce([longer(job, 4)])
    (job.path / "result.json").unlink()
    assert reproduce([job]).done == [job.name]
    assert measurement(job, SINE).num_iterations == 4


def test_a_run_stopped_within_an_epoch_is_trained_to_its_end(quick, tmp_path) -> None:
    job = quick()
    outer = job.experiment.outer.model_copy(update={"validate_every": 5, "num_iterations": 5})
    job = replace(job, experiment=job.experiment.model_copy(update={"outer": outer}))

    def asked() -> bool:
        # After the last validation.
        return Run(job.path).files.checkpoint("last").is_file() and next(count) >= 1

    count = itertools.count()
    with pytest.raises(Stopped):
        train_run(Run.new(job.path, longer(job, 20).experiment), should_stop=asked)
    last = Run(job.path).load_last()
    assert last is not None
    assert last.progress["iteration"] == 6
    assert Run(job.path).metrics[-1]["iteration"] == 5
    assert reproduce([job]) == JobResult(done=[job.name])
    assert measurement(job, SINE).num_iterations == 10
    unbroken = replace(longer(job, 10), path=tmp_path / "unbroken")
    reproduce([unbroken])
    assert measurement(job, SINE).value == measurement(unbroken, SINE).value


def test_a_stopped_run_is_resumed(quick) -> None:
    job = quick()
    reproduce([job])
    (job.path / "result.json").unlink()
    assert cell_status(job, SINE)[0] == State.STOPPED
    assert measurement(job, SINE) is None
    assert reproduce([job]).done == [job.name]
    assert cell_status(job, SINE)[0] == State.DONE


def test_a_run_with_nothing_to_train_has_no_iterations(quick) -> None:
    cell = TABLES["table1"].entries["random/conv4", "miniimagenet-5w1s"]
    job = quick(cell)
    reproduce([job])
    assert cell_status(job, cell)[0] == State.DONE
    assert measurement(job, cell).num_iterations == 0


def test_another_experiment_in_the_folder_is_left_alone(quick) -> None:
    job = quick()
    reproduce([job])
    before = (job.path / "result.json").read_bytes()
    assert cell_status(other(job), SINE)[0] == State.DIFFERS
    assert measurement(other(job), SINE) is None
    outcome = reproduce([other(job)])
    assert "contains another experiment; move the folder" in outcome.failed[job.name]
    assert (job.path / "result.json").read_bytes() == before
    assert cell_status(job, SINE)[0] == State.DONE


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
@pytest.mark.parametrize("name", ["config.toml", "result.json"])
def test_a_damaged_folder_is_named_and_left_alone(quick, name: str, content: str) -> None:
    job = quick()
    reproduce([job])
    (job.path / name).write_text(content)
    state, told = cell_status(job, SINE)
    assert state == State.DAMAGED
    assert name in told
    assert measurement(job, SINE) is None
    assert name in reproduce([job]).failed[job.name]
    assert (job.path / name).read_text() == content


def test_a_folder_in_use_is_skipped(quick) -> None:
    job, second = quick(), quick(TABLES["table8"].entries["maml", "10s-2x40"])
    with Run(job.path).files.lock():
        assert cell_status(job, SINE)[0] == State.RUNNING
        assert reproduce([job, second]) == JobResult(busy=[job.name], done=[second.name])


# --- failures


def test_a_failure_is_saved_and_does_not_stop_other_jobs(quick, monkeypatch) -> None:
    job, second = quick(), quick(TABLES["table8"].entries["maml", "10s-2x40"])
    work = module.train_run

    def fail(run, **options):
        if run.path == job.path:
            raise RuntimeError("out of memory")
        return work(run, **options)

    monkeypatch.setattr(module, "train_run", fail)
    outcome = reproduce([job, second])
    sentence = f"RuntimeError('out of memory'); the traceback is in {job.error_file()}."
    assert outcome == JobResult(done=[second.name], failed={job.name: sentence})
    assert cell_status(job, SINE) == (State.FAILED, sentence.removesuffix("."))
    assert "Traceback" in job.error_file().read_text()
    monkeypatch.setattr(module, "train_run", work)
    assert reproduce([job]).done == [job.name]
    assert cell_status(job, SINE)[0] == State.DONE


def test_a_new_attempt_removes_the_saved_error(quick, monkeypatch) -> None:
    job = quick()

    def fail(*args, **options):
        raise DataError("not prepared.")

    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "train_run", fail)
    reproduce([job])
    assert cell_status(job, SINE) == (State.FAILED, "not prepared")
    monkeypatch.setattr(module, "train_run", stop)
    with pytest.raises(KeyboardInterrupt):
        reproduce([job])
    assert cell_status(job, SINE) == (State.NOT_RUN, "")


def test_a_missing_dataset_is_an_error(tmp_path) -> None:
    (job,) = plan_jobs([ACROSS], tmp_path)
    outcome = reproduce([job])
    assert "miniimagenet is not prepared" in outcome.failed[job.name]
    state, told = cell_status(job, ACROSS)
    assert (state, told) == (State.FAILED, outcome.failed[job.name].removesuffix("."))


# --- other datasets


def test_a_model_is_trained_once_and_tested_on_every_dataset(quick, monkeypatch) -> None:
    cells = [cell for cell in TABLES["tableE"].cells if "/maml/" in cell.id]
    job = quick(*cells, ACROSS)
    calls = []
    work = module.evaluate_run
    monkeypatch.setattr(module, "evaluate_run", lambda run, **o: calls.append(o) or work(run, **o))
    reproduce([job])
    # None of the datasets is prepared, and the generated one replaces all of them.
    assert len(calls) == 1
    assert all(cell_status(job, cell)[0] == State.DONE for cell in job.cells)
    assert {path.name for path in (job.path / "tests").iterdir()} == {
        *("cub.json", "omniglot.json", "fc100.json", "cifar-fs.json"),
    }
    content = json.loads((job.path / "tests" / "cub.json").read_text())
    assert content["dataset"] == "strokes"
    assert measurement(job, ACROSS).value == 100 * content["accuracy"]


def test_only_missing_tests_are_run(done, monkeypatch) -> None:
    job = done
    (job.path / "tests" / "cub.json").unlink()
    assert cell_status(job, ACROSS) == (State.STOPPED, "trained, but not tested on cub")
    monkeypatch.setattr(module, "train_run", lambda *a, **o: pytest.fail("trained again"))
    assert reproduce([job]).done == [job.name]
    assert cell_status(job, ACROSS)[0] == State.DONE


def test_a_test_of_a_shorter_training_does_not_count(done) -> None:
    job = done
    train_run(Run.new(job.path, longer(job, 3).experiment), resume=True)
    assert cell_status(longer(job, 3), ACROSS)[0] == State.STOPPED
    assert measurement(longer(job, 3), ACROSS) is None


def test_a_damaged_test_is_named_and_the_other_cells_are_done(done) -> None:
    (omniglot,) = [c for c in TABLES["tableE"].cells if "omniglot/maml/" in c.id]
    job = replace(done, cells=(ACROSS, omniglot))
    (job.path / "tests" / "cub.json").write_text("{")
    assert cell_status(job, ACROSS)[0] == State.DAMAGED
    outcome = reproduce([job])
    assert list(outcome.failed) == [ACROSS.id]
    assert "cub.json is damaged; remove the file" in outcome.failed[ACROSS.id]
    assert cell_status(job, omniglot)[0] == State.DONE


def test_a_missing_dataset_does_not_prevent_tests_on_others(quick, monkeypatch) -> None:
    others = [cell for cell in TABLES["tableE"].cells if "/maml/" in cell.id]
    job = quick(ACROSS, *others)
    work = module.evaluate_run

    def fail(run, **options):
        if failing:
            failing.pop()
            raise DataError("cub is not prepared.")
        return work(run, **options)

    failing = [True]
    monkeypatch.setattr(module, "evaluate_run", fail)
    assert reproduce([job]).failed == {ACROSS.id: "cub is not prepared."}
    assert cell_status(job, ACROSS) == (State.FAILED, "cub is not prepared")
    assert all(cell_status(job, cell)[0] == State.DONE for cell in others)
    assert Run(job.path).result is not None
    assert reproduce([job]).done == [job.name]
    assert cell_status(job, ACROSS) == (State.DONE, "")


# --- several processes


def test_two_reproductions_at_once_run_every_model_once(tmp_path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from alfa.paper import TABLES, plan_jobs, reproduce\n"
        "jobs = plan_jobs(TABLES['table8'].cells[:6], Path(sys.argv[1]), quick=True)\n"
        "print('ready', flush=True)\n"
        "print(reproduce(jobs))\n"
    )
    jobs = plan_jobs(TABLES["table8"].cells[:6], tmp_path, quick=True)
    command = [sys.executable, "-c", code, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        outcomes = [reproduce(jobs)]
        outcomes.append(eval(other.communicate()[0], {"JobResult": JobResult}))
    assert [outcome.failed for outcome in outcomes] == [{}, {}]
    done = [name for outcome in outcomes for name in outcome.done]
    assert len(done) == len(set(done)) == 6
