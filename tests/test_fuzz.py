"""Randomly changed files are either used or rejected with one clear error.

`benchmarks/fuzz.py` does the same with thousands of files.
"""

from __future__ import annotations

import importlib.util
import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz", ROOT / "benchmarks/fuzz.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch) -> Iterator[None]:
    folder, data, threads = os.getcwd(), os.environ.get("ALFA_DATA"), torch.get_num_threads()
    yield
    os.chdir(folder)
    if data is None:
        os.environ.pop("ALFA_DATA", None)
    else:
        os.environ["ALFA_DATA"] = data
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "kind",
    ["Configs", "RunFolders", "Checkpoints", "SplitFiles", "Archives", "Images", "Stores"],
)
def test_a_changed_file_is_used_or_rejected_with_a_clear_error(fuzz, kind: str) -> None:
    faults = [found for found in fuzz.tried(getattr(fuzz, kind), range(15)) if found[1]]
    assert faults == []


def test_there_are_seven_kinds(fuzz) -> None:
    assert len(fuzz.KINDS) == 7


def test_most_changes_have_an_effect(fuzz) -> None:
    whole = b'{"train": ["a", "b"], "val": ["c"]}'
    changed = [fuzz.mutated(whole, random.Random(seed)) for seed in range(200)]
    assert sum(content != whole for content in changed) > 150
    assert len(set(changed)) > 150


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "no-such-experiment"], None),
        (["data", "list"], None),
        (["train", "sinusoid", "--out", "."], None),
    ],
)
def test_clear_errors_are_not_faults(fuzz, tmp_path, monkeypatch, words, expected) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert fuzz.fault_of(words) == expected


def test_a_traceback_is_a_fault(fuzz, monkeypatch) -> None:
    def broken(words: list[str]) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(fuzz, "main", broken)
    assert "KeyError: 'surprise'" in fuzz.fault_of(["data", "list"])


def test_a_hang_is_a_fault(fuzz, monkeypatch) -> None:
    def endless(words: list[str]) -> None:
        while True:
            pass

    monkeypatch.setattr(fuzz, "main", endless)
    monkeypatch.setattr(fuzz, "LONGEST", 0.1)
    assert "took longer" in fuzz.fault_of(["data", "list"])
