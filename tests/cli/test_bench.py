"""`alfa bench`: the tables and the JSON output."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from alfa.bench import worker
from alfa.bench.measure import Comparison
from alfa.bench.workloads import WORKLOADS


@pytest.fixture
def measured(monkeypatch):
    """Replace the measurements; tests can change their values."""
    changes = {}

    def fake(workload, rival, *, rounds, on_round):
        for _ in range(2 * rounds):
            on_round()
        comparison = Comparison(workload, rival, 0.5, 10**9, 2.0, 3 * 10**9, rounds)
        if rival == "limit":
            comparison = dataclasses.replace(comparison, seconds=0.48, rival_seconds=0.4)
        return dataclasses.replace(comparison, **changes)

    monkeypatch.setattr("alfa.bench.compare", fake)
    monkeypatch.setattr(
        "alfa.bench.rivals_of", lambda workload: ["plain", "higher", "plain_kept", "limit"]
    )
    return changes


@pytest.mark.usefixtures("measured")
def test_bench_prints_a_table_for_every_work(alfa) -> None:
    answer = alfa("bench", "--workload", "train-28", "--workload", "sinusoid", "--rounds", "1")
    assert answer.code == 0
    first, second, note = answer.out.split("\n\n")
    title, *rows = first.splitlines()
    assert title == "train-28: train, 28x28x1, 5-way 1-shot, 4 tasks"
    assert [re.split(r" {2,}", row.strip()) for row in rows] == [
        ["engine", "it/s", "ms", "GB", "ratio"],
        ["alfa", "2.08", "480.0", "1.00", "1.00x"],
        ["plain", "0.50", "2000.0", "3.00", "4.00x"],
        ["higher", "0.50", "2000.0", "3.00", "4.00x"],
        ["plain, kept", "0.50", "2000.0", "3.00", "4.00x"],
        ["convolutions alone", "2.50", "400.0", "3.00", "0.83x"],
    ]
    assert second.startswith("sinusoid: train, sinusoid")
    assert "ratio: " in note


@pytest.mark.usefixtures("measured")
def test_what_only_one_of_them_leaves_out_is_said(alfa) -> None:
    told = "alfa builds no graph here; the others lack this mode, and train."
    assert told in alfa("bench", "--workload", "evaluate-84", "--rounds", "1").out
    assert told not in alfa("bench", "--workload", "train-84", "--rounds", "1").out


@pytest.mark.usefixtures("measured")
def test_the_tables_are_narrow(alfa, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    answer = alfa("bench", "--rounds", "1")
    *blocks, note = answer.out.split("\n\n")
    assert len(blocks) == len(WORKLOADS)
    lines = [line for block in blocks for line in block.splitlines()]
    assert max(map(len, lines)) <= 80
    assert max(map(len, note.splitlines())) <= 100
    assert "\N{HORIZONTAL ELLIPSIS}" not in answer.out
    assert len({line.index("it/s") for line in lines if line.startswith("engine")}) == 1


def test_where_the_system_does_not_tell_the_peak_there_is_none(alfa, measured) -> None:
    measured.update(peak=None, rival_peak=None)
    answer = alfa("bench", "--workload", "train-28")
    rows = answer.out.split("\n\n")[0].splitlines()[2:]
    assert [row.split()[-2] for row in rows] == ["-"] * 5
    content = json.loads(alfa("bench", "--workload", "train-28", "--json").out)
    assert content["train-28"]["plain"]["peak"] is None
    assert content["train-28"]["plain"]["rival_peak"] is None


def test_a_worker_that_ends_too_early_is_one_sentence(alfa, monkeypatch) -> None:
    class Killed(worker.Worker):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self._process.kill()
            self._process.wait()

    monkeypatch.setattr("alfa.bench.measure.Worker", Killed)
    answer = alfa("bench", "--workload", "sinusoid")
    assert answer.code == 2
    assert answer.out == ""
    assert "alfa: the worker for workload 'sinusoid' with engine 'alfa' ended" in answer.err
    assert "exit code -9" in answer.err


@pytest.mark.usefixtures("measured")
def test_bench_prints_json(alfa) -> None:
    answer = alfa("bench", "--workload", "sinusoid", "--rounds", "2", "--json")
    content = json.loads(answer.out)
    assert content["sinusoid"]["plain"]["ratio"] == 4
    assert content["sinusoid"]["plain"]["rounds"] == 2
    assert {"workload", "rival", "seconds", "peak", "rival_seconds", "rival_peak"} < set(
        content["sinusoid"]["plain"]
    )


def test_a_misspelt_work_gets_a_hint(alfa) -> None:
    answer = alfa("bench", "--workload", "train-48")
    assert answer.code == 2
    assert "Did you mean 'train-84'" in answer.err
