"""The process keeps the memory of large tensors, unless that is disabled."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from alfa import _runtime
from alfa._runtime import keep_memory

needs_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc can keep memory"
)

PROGRAM = """
import resource
import torch
from alfa._runtime import keep_memory
keep_memory()

def faults_after(rounds):
    for _ in range(rounds):
        torch.ones(12_500_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

settled = faults_after(10)
print(int(keep_memory()), faults_after(5) - settled)
"""


class Process(NamedTuple):
    """The result of `keep_memory` in a new process, and the page faults of five large tensors."""

    kept: int
    faults: int


@pytest.fixture(scope="module")
def usual(printed) -> Process:
    return Process(*printed(PROGRAM, _runtime.KEEP_MEMORY))


@pytest.fixture(scope="module")
def switched_off(printed) -> Process:
    return Process(*printed(PROGRAM, _runtime.KEEP_MEMORY, value="0"))


@pytest.fixture
def asked_again() -> Iterator[None]:
    """Clear the cached answer."""
    keep_memory.cache_clear()
    yield
    keep_memory.cache_clear()


@pytest.fixture
def no_library(monkeypatch) -> None:
    def refuse(name: str | None) -> None:
        raise AssertionError("the C library was asked for")

    monkeypatch.setattr(ctypes, "CDLL", refuse)


@needs_glibc
def test_memory_is_kept_unless_it_is_switched_off(usual, switched_off) -> None:
    assert (usual.kept, switched_off.kept) == (True, False)


@needs_glibc
def test_memory_that_is_kept_is_not_handed_out_again(usual, switched_off) -> None:
    assert usual.faults * 4 < switched_off.faults


@needs_glibc
def test_any_other_value_of_the_switch_leaves_it_on(asked_again, monkeypatch) -> None:
    monkeypatch.setenv(_runtime.KEEP_MEMORY, "1")
    assert keep_memory() is True


def test_the_switch_turns_it_off(asked_again, no_library, monkeypatch) -> None:
    monkeypatch.setenv(_runtime.KEEP_MEMORY, "0")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    assert keep_memory() is False


def test_nothing_is_done_where_the_library_is_another(asked_again, no_library, monkeypatch) -> None:
    monkeypatch.delenv(_runtime.KEEP_MEMORY, raising=False)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert keep_memory() is False


def test_a_setting_that_the_library_refuses_is_told(asked_again, monkeypatch) -> None:
    class Library:
        def mallopt(self, key: int, value: int) -> int:
            return 0

    monkeypatch.delenv(_runtime.KEEP_MEMORY, raising=False)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert keep_memory() is False


def test_nothing_is_given_back_however_much_lies_free(asked_again, monkeypatch) -> None:
    settings: dict[int, int] = {}

    class Library:
        def mallopt(self, key: int, value: int) -> int:
            settings[key] = value
            return 1

    monkeypatch.delenv(_runtime.KEEP_MEMORY, raising=False)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert keep_memory() is True
    # M_TRIM_THRESHOLD is -1 in malloc.h, and only a threshold of -1 disables trimming.
    assert settings[-1] == -1
