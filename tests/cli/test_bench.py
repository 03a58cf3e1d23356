"""`alfa bench`: what it prints of what was measured."""

from __future__ import annotations

import json

import pytest

from alfa.bench import Comparison


@pytest.fixture
def measured(monkeypatch):
    def fake(work, rival, *, rounds, on_round):
        for _ in range(2 * rounds):
            on_round()
        return Comparison(work, rival, 0.5, 10**9, 2.0, 3 * 10**9, rounds)

    monkeypatch.setattr("alfa.bench.compare", fake)


@pytest.mark.usefixtures("measured")
def test_bench_prints_a_table(alfa) -> None:
    answer = alfa("bench", "--work", "train-28", "--rounds", "1")
    assert answer.code == 0
    (line,) = (line for line in answer.out.splitlines() if line.startswith("train-28"))
    assert line.split() == ["train-28", "2.00", "1.00", *["4.00x"] * 4, "0.25"]


@pytest.mark.usefixtures("measured")
def test_bench_prints_json(alfa) -> None:
    answer = alfa("bench", "--work", "sinusoid", "--rounds", "2", "--json")
    content = json.loads(answer.out)
    assert content["sinusoid"]["plain"]["ratio"] == 4
    assert content["sinusoid"]["plain"]["rounds"] == 2


def test_a_misspelt_work_gets_a_hint(alfa) -> None:
    answer = alfa("bench", "--work", "train-48")
    assert answer.code == 2
    assert "Did you mean 'train-84'" in answer.err
