"""The paper's tables from the command line: list, reproduce, and report."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from alfa.config import to_dict
from alfa.data import Signature
from alfa.paper import TABLES, Cell
from alfa.runs import Run


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "reproduction"


def test_without_a_table_all_are_listed(alfa, out) -> None:
    answer = alfa("reproduce", "--out", out)
    assert answer.code == 0
    assert "table1" in answer.out
    assert "56 not run" in answer.out
    assert "60 not run" in answer.out
    assert "40 not run" in answer.out
    assert "22 not run; repeats Table 1 " in answer.out
    assert "10 not run; repeats Table 3 " in answer.out
    rows = json.loads(alfa("reproduce", "--out", out, "--json").out)
    assert {row["table"]: row["repeats"] for row in rows if row["repeats"]} == {
        "tableC": ["table1"],
        "tableD": ["table3"],
    }
    assert {row["table"]: row["cells"] for row in rows} == {
        name: len(table.cells) for name, table in TABLES.items()
    }
    assert not out.exists()


def test_cells_are_listed_and_not_run(alfa, out) -> None:
    words = ("table1", "--dataset", "miniimagenet", "--shots", "5", "--rows", "alfa+maml")
    rows = json.loads(alfa("reproduce", *words, "--list", "--json", "--out", out).out)
    assert [(row["id"], row["state"], row["published"]) for row in rows] == [
        ("table1/miniimagenet-5w5s/alfa+maml/conv4", "not run", "69.12 +- 0.47"),
        ("table1/miniimagenet-5w5s/alfa+maml/resnet12", "not run", "77.96 +- 0.41"),
    ]
    answer = alfa("reproduce", "table3", "--list", "--out", out)
    assert answer.out.count("table3/ilsvrc-to-omniglot/alfa+fo-proto-maml/resnet18") == 1
    assert not out.exists()


def test_what_a_cluster_computes_on_need_not_be_here(refused, out, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ("reproduce", "table8", "--device", "cuda", "--out", out)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "--device is 'cuda', which this machine does not have" in refused(*words)
    assert "--on ray needs Ray" in refused(*words, "--on", "ray")


def test_cells_are_run_once_and_shown_beside_the_published_figures(alfa, out) -> None:
    words = ("reproduce", "TABLE8", "--shots", "5", "--rows", "maml", "--quick", "--out", out)
    answer = alfa(*words)
    assert answer.code == 0
    assert "table8/sinusoid-5s/maml/mlp-2x40" in answer.out
    assert "1.24 +- 0.21" in answer.out
    assert "they are not results" in answer.out
    # The result of a quick run is never printed.
    path = out / "quick/sinusoid-5s/maml/mlp-2x40/seed-0"
    result = Run(path).result
    assert result is not None
    assert f"{result['test']['loss']:.2f}" not in answer.out
    before = (path / "result.json").stat().st_mtime_ns
    assert alfa(*words).code == 0
    assert (path / "result.json").stat().st_mtime_ns == before
    (row, _) = json.loads(alfa(*words, "--list", "--json").out)
    assert (row["state"], row["measured"]["is_quick"]) == ("done", True)


def test_what_failed_is_told_at_the_end(alfa, out) -> None:
    answer = alfa("reproduce", "table4", "--rows", "maml", "--shots", "1", "--out", out)
    assert answer.code == 1
    assert "failed: miniimagenet is not prepared" in answer.err
    assert "failed" in answer.out


def test_what_another_process_runs_is_told(alfa, out) -> None:
    path = out / "quick/sinusoid-5s/maml/mlp-2x40/seed-0"
    words = ("reproduce", "table8", "--shots", "5", "--rows", "maml", "--quick", "--out", out)
    with Run(path).files.lock():
        answer = alfa(*words)
    assert answer.code == 0
    assert (
        "skipped sinusoid-5s/maml/mlp-2x40/seed-0, which another process is running" in answer.err
    )
    assert "running" in answer.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["tabel1"], "Did you mean 'table1'?"),
        (["table1", "--rows", "alfa+mam"], "Did you mean 'alfa+maml'?"),
        (["--rows", "maml"], "TABLES is missing; name tables, such as table1, or add --all"),
        (["--dry-run"], "TABLES is missing"),
        (["table1", "--all"], "--all selects every table; omit --all or table1"),
        (["table8", "--device", "cuda:9"], "--device is 'cuda:9', which this machine does not"),
        (["table8", "--quick", "--iterations", "5"], "--quick sets the number of iterations"),
        (["--quick", "--iterations", "5"], "--quick sets the number of iterations"),
        (["--jobs", "4"], "TABLES is missing"),
        (["--on", "ray"], "TABLES is missing"),
        (
            ["table8", "--jobs", "2", "--dry-run"],
            "--dry-run trains nothing, so --jobs and --on do not apply",
        ),
        (
            ["table8", "--on", "ray", "--list"],
            "--list trains nothing, so --jobs and --on do not apply",
        ),
    ],
)
def test_wrong_words_are_sentences(refused, out, words, sentence) -> None:
    assert sentence in refused("reproduce", *words, "--out", out)
    assert not out.exists()


def test_costs_are_told_and_nothing_is_run(alfa, out, monkeypatch) -> None:
    monkeypatch.setattr("alfa.bench.speed._SECONDS", 0.01)
    words = ("reproduce", "table8", "--shots", "5", "--rows", "maml", "--dry-run", "--out", out)
    answer = alfa(*words)
    assert answer.code == 0
    assert "2 models to train, 0 done; estimated time on this machine: " in answer.out
    assert "Memory is the peak of the process." in answer.out
    assert [path.name for path in out.iterdir()] == ["speeds.json"]
    costs = json.loads(alfa(*words, "--json").out)
    assert all(cost["seconds"] > 0 and cost["trains"] for cost in costs.values())


def test_iterations_are_whole_epochs(alfa, out) -> None:
    words = ("reproduce", "table8", "--iterations", "700", "--list", "--json", "--out", out)
    assert "rounded --iterations 700 up to 1000, a multiple of 500 (one epoch)" in alfa(*words).err


def test_a_shorter_or_longer_training_is_told_beside_what_the_cell_asks_for(alfa, out) -> None:
    cell = TABLES["table8"].entries["maml", "5s-2x40"]
    words = ("reproduce", "table8", "--shots", "5", "--rows", "maml", "--out", out, "--list")

    def listed(num_iterations: int) -> str:
        _write_run(cell, out / "runs" / cell.run / "seed-0", num_iterations)
        answer = alfa(*words, "--iterations", "500")
        line = next(line for line in answer.out.splitlines() if cell.id in line)
        assert " done " in line
        return line

    assert listed(500).rstrip().endswith("  500 of 30,000")
    assert listed(30_000).rstrip().endswith("  30,000")
    assert listed(60_000).rstrip().endswith("  60,000 instead of 30,000")
    (row, _) = json.loads(alfa(*words, "--json").out)
    assert (row["measured"]["num_iterations"], row["num_iterations_wanted"]) == (60_000, 30_000)


def test_what_has_nothing_to_train_lacks_no_iterations(alfa, out) -> None:
    cell = TABLES["table1"].entries["random/conv4", "miniimagenet-5w5s"]
    _write_run(cell, out / "runs" / cell.run / "seed-0", 0, num_meta_parameters=0)
    words = ("--dataset", "miniimagenet", "--shots", "5", "--rows", "random/conv4")
    answer = alfa("reproduce", "table1", *words, "--list", "--out", out)
    line = next(line for line in answer.out.splitlines() if cell.id in line)
    assert line.rstrip().endswith("  0")


def _write_run(
    cell: Cell, path: Path, num_iterations: int, *, num_meta_parameters: int = 100
) -> None:
    """Write a run folder as if a cell had been run."""
    run = Run.new(path, cell.experiment)
    run.create(Signature((1,), 1, "mse"))
    run.files.append_metrics({"iteration": num_iterations, "val_loss": 1.0})
    figures = (0.31, 0.01) if cell.metric == "accuracy" else (None, None)
    test = {"loss": 0.0123, "interval": 0.0045, "num_tasks": 600, "num_models": 1}
    test |= dict(zip(("accuracy", "accuracy_interval"), figures, strict=True))
    run.files.write_result(
        {
            "test": test,
            "best_iteration": num_iterations,
            "val_loss": 1.0,
            "num_iterations": num_iterations,
            "num_meta_parameters": num_meta_parameters,
            "seconds": 60.0,
            "config": to_dict(cell.experiment),
        }
    )


def test_jobs_that_are_stopped_go_on(alfa, out, monkeypatch) -> None:
    # The command may have ended when the signal arrives.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stopping = threading.Thread(target=_stop_when_two_have_begun, args=(out,))
    stopping.start()
    words = ("reproduce", "table8", "--shots", "5", "--iterations", "20000", "--jobs", "2")
    try:
        answer = alfa(*words, "--out", out, "--json")
    finally:
        stopping.join()
        signal.signal(signal.SIGTERM, before)
    assert answer.code == 143
    assert "alfa: stopped; run the same command again to continue." in answer.err
    assert "Traceback" not in answer.err
    assert len(list(out.rglob("last.safetensors"))) == 2


def _stop_when_two_have_begun(out: Path) -> None:
    deadline = time.monotonic() + 90
    while len(list(out.rglob("config.toml"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGTERM)


# --- report


def test_the_list_of_runs_has_three_digits_where_there_is_no_accuracy(alfa, tmp_path) -> None:
    for table, place in (
        ("table8", ("maml", "5s-2x40")),
        ("table1", ("maml/conv4", "miniimagenet-5w5s")),
    ):
        _write_run(TABLES[table].entries[place], tmp_path / "runs" / table, 500)
    alfa("report", tmp_path / "runs", "--out", tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    listed = html.split("Runs and their cost")[1]
    assert "<td>0.012 \u00b1 0.004</td>" in listed
    assert "<td>31.00 \u00b1 1.00</td>" in listed


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_quick_run_is_listed_as_quick(alfa, out, tmp_path, is_damaged: bool) -> None:
    words = ("table8", "--shots", "5", "--rows", "maml", "--quick", "--out", out)
    alfa("reproduce", *words)
    path = out / "quick/sinusoid-5s/maml/mlp-2x40/seed-0"
    if is_damaged:
        result = json.loads((path / "result.json").read_text())
        (path / "result.json").write_text(json.dumps({**result, "paper": {}}))
    answer = alfa("report", path, "--out", tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    assert html.split("Runs and their cost")[1].count("<td>quick, no result</td>") == 1
    told = f"{path / 'result.json'} is damaged: it does not state whether the run is quick"
    assert (f"alfa: unreadable: {told}" in answer.err) == is_damaged
    assert (told in html) == is_damaged


def test_a_report_is_written_in_every_format(alfa, out, tmp_path) -> None:
    alfa("reproduce", "table8", "--shots", "5", "--rows", "maml", "--quick", "--out", out)
    files = [tmp_path / f"report.{kind}" for kind in ("html", "md", "csv", "tex")]
    words = [word for file in files for word in ("--out", file)]
    answer = alfa("report", out, *words)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [f"written: {file}" for file in files]
    html, md, csv, tex = (file.read_text() for file in files)
    assert "<em>quick</em>" in html
    assert 'href="reproduction/quick/sinusoid-5s/maml/mlp-2x40/seed-0"' in html
    assert "**quick** / 1.24 +- 0.21" in md
    assert "reproduction/quick/sinusoid-5s/maml/mlp-2x40/seed-0" in csv
    assert r"\toprule" in tex
    # Only tables with a run, unless --all is given.
    assert 'id="table1"' not in html
    alfa("report", out, "--all", "--out", files[0])
    assert all(f'id="{name}"' in files[0].read_text() for name in TABLES)
    alfa("report", out, "--table", "table5", "--out", files[1])
    assert files[1].read_text().startswith("## Table 5")


def test_no_empty_table_is_written(alfa, refused, tmp_path) -> None:
    settings = ("model.hidden=[7]", "outer.num_iterations=2", "outer.num_val_tasks=2")
    words = [word for setting in settings for word in ("--set", setting)]
    train = ("train", "sinusoid", "--method", "maml", "--out", tmp_path / "mine")
    alfa(*train, *words, "--set", "test.num_tasks=3")
    page = tmp_path / "report.html"
    for kind in ("md", "csv", "tex"):
        file = tmp_path / f"report.{kind}"
        told = refused("report", tmp_path / "mine", "--out", page, "--out", file)
        assert f"so {file} would be empty; list all runs with --out report.html" in told
        assert not any(path.exists() for path in (page, file))
    assert alfa("report", tmp_path / "mine", "--out", page).code == 0


def test_a_real_run_anywhere_is_reported_and_a_damaged_one_named(alfa, tmp_path) -> None:
    settings = ("outer.num_iterations=2", "outer.num_val_tasks=2", "test.num_tasks=3")
    words = [word for setting in settings for word in ("--set", setting)]
    alfa("train", "sinusoid", "--method", "maml", "--out", tmp_path / "mine", *words)
    alfa("train", "sinusoid", "--method", "maml", "--out", tmp_path / "bad", *words)
    (tmp_path / "bad/result.json").write_text("{")
    answer = alfa("report", tmp_path / "mine", tmp_path / "bad", "--out", tmp_path / "report.html")
    assert answer.code == 0
    assert "unreadable: " in answer.err
    assert "result.json is damaged" in answer.err
    html = (tmp_path / "report.html").read_text()
    assert "Unreadable files" in html
    assert "not complete" not in html


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "nowhere is not a folder"),
        (["empty"], "empty contains no readable run; run `alfa reproduce`"),
        ([".", "--out", "a.txt"], "--out must end in .html, .md, .csv, .tex, got a.txt."),
        ([".", "--table", "table9"], "is not one of"),
    ],
)
def test_a_report_that_cannot_be_made_is_a_sentence(
    refused, tmp_path, monkeypatch, words, sentence
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert sentence in refused("report", *words)
    assert not (tmp_path / "report.html").exists()
