"""As many threads as the machine really gives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from alfa._runtime import _threads, set_threads
from alfa.ops import _compiled


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture
def eight_cpus(monkeypatch, tmp_path) -> None:
    """Of which all may be used."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(_threads, "_QUOTA", tmp_path / "missing")


def test_without_a_limit_all_processors_are_usable(eight_cpus) -> None:
    assert _threads.usable_cpus() == 8


def test_affinity_limits_the_processors(eight_cpus, monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 5})
    assert _threads.usable_cpus() == 3


def test_a_system_without_affinity_counts_its_processors(eight_cpus, monkeypatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert _threads.usable_cpus() == 8
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert _threads.usable_cpus() == 1


@pytest.mark.parametrize(
    ("quota", "usable"),
    [
        ("150000 100000", 2),
        ("200000 100000\n", 2),
        ("20000 100000", 1),
        ("1600000 100000", 8),
        ("max 100000", 8),
        ("", 8),
    ],
)
def test_the_quota_of_a_container_limits_the_processors(
    eight_cpus, monkeypatch, tmp_path, quota, usable
) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    monkeypatch.setattr(_threads, "_QUOTA", file)
    assert _threads.usable_cpus() == usable


@pytest.mark.parametrize("small", [True, False])
def test_a_number_that_is_asked_for_is_set(monkeypatch, small) -> None:
    monkeypatch.setattr(_threads, "usable_cpus", lambda: 1)
    assert set_threads(3, small=small) == 3
    assert torch.get_num_threads() == 3


def test_small_operations_get_one_thread(monkeypatch) -> None:
    monkeypatch.setattr(_threads, "usable_cpus", lambda: 8)
    torch.set_num_threads(2)
    assert set_threads(small=True) == 1
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(("usable", "number"), [(1, 1), (2, 2), (8, 4)])
def test_threads_are_never_more_than_usable_processors(monkeypatch, usable, number) -> None:
    monkeypatch.setattr(_threads, "usable_cpus", lambda: usable)
    torch.set_num_threads(4)
    assert set_threads() == number
    assert torch.get_num_threads() == number


def test_what_a_small_model_got_is_not_handed_on(monkeypatch) -> None:
    monkeypatch.setattr(_threads, "usable_cpus", lambda: 8)
    torch.set_num_threads(4)
    assert [set_threads(small=True), set_threads(), set_threads(2), set_threads()] == [1, 4, 2, 4]
    # Somebody else's choice counts.
    torch.set_num_threads(3)
    assert [set_threads(small=True), set_threads()] == [1, 3]


@pytest.mark.parametrize(("share", "number"), [(1, 6), (2, 4), (3, 2), (9, 1)])
def test_processes_share_the_processors(monkeypatch, share: int, number: int) -> None:
    monkeypatch.setattr(_threads, "usable_cpus", lambda: 8)
    torch.set_num_threads(6)
    assert set_threads(share=share) == number
    assert set_threads(5, share=share) == 5
    assert set_threads(small=True, share=share) == 1


def test_the_compiled_kernels_get_as_many_as_torch() -> None:
    numba = pytest.importorskip("numba")
    _compiled.norm_kernels()
    for number in (1, numba.config.NUMBA_NUM_THREADS):
        set_threads(number)
        _compiled.norm_kernels()
        assert numba.get_num_threads() == number


def test_the_first_use_of_the_kernels_leaves_the_number_as_it_is() -> None:
    code = (
        "import torch; from alfa.ops import _compiled; from alfa._runtime import set_threads; set_threads(1); "
        "_compiled.norm_kernels(); print(torch.get_num_threads())"
    )
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["1"]
