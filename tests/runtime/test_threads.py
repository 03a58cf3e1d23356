"""The number of threads that the machine provides."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from alfa import _runtime
from alfa._runtime import set_threads
from alfa.ops import _compiled


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


def test_affinity_limits_the_processors() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from alfa._runtime import usable_cpus; print(usable_cpus())"
    )
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system has no CPU affinity")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


@pytest.mark.parametrize("small", [True, False])
def test_a_number_that_is_asked_for_is_set(monkeypatch, small) -> None:
    monkeypatch.setattr(_runtime, "usable_cpus", lambda: 1)
    assert set_threads(3, small=small) == 3
    assert torch.get_num_threads() == 3


def test_small_operations_get_one_thread(monkeypatch) -> None:
    monkeypatch.setattr(_runtime, "usable_cpus", lambda: 8)
    torch.set_num_threads(2)
    assert set_threads(small=True) == 1
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(("usable", "number"), [(1, 1), (2, 2), (8, 4)])
def test_threads_are_never_more_than_usable_processors(monkeypatch, usable, number) -> None:
    monkeypatch.setattr(_runtime, "usable_cpus", lambda: usable)
    torch.set_num_threads(4)
    assert set_threads() == number
    assert torch.get_num_threads() == number


def test_what_a_small_model_got_is_not_handed_on(monkeypatch) -> None:
    monkeypatch.setattr(_runtime, "usable_cpus", lambda: 8)
    torch.set_num_threads(4)
    assert [set_threads(small=True), set_threads(), set_threads(2), set_threads()] == [1, 4, 2, 4]
    # The user's own choice counts.
    torch.set_num_threads(3)
    assert [set_threads(small=True), set_threads()] == [1, 3]


@pytest.mark.parametrize(("share", "number"), [(1, 6), (2, 4), (3, 2), (9, 1)])
def test_processes_share_the_processors(monkeypatch, share: int, number: int) -> None:
    monkeypatch.setattr(_runtime, "usable_cpus", lambda: 8)
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
        "import torch; from alfa.ops import _compiled; from alfa._runtime import set_threads; "
        "set_threads(1); _compiled.norm_kernels(); print(torch.get_num_threads())"
    )
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["1"]
