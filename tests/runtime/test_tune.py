"""Importing alfa does not change the process; `alfa.tune` does."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

import alfa

# Calls of mallopt, the allocator's settings, are recorded; every public name is imported.
PROGRAM = """
import ctypes, os, signal, sys, warnings
calls = []
load = ctypes.CDLL

class Recorder:
    def __init__(self, library):
        self.library = library
    def __getattr__(self, name):
        if name == "mallopt":
            return lambda *given: calls.append(given) or 1
        return getattr(self.library, name)

ctypes.CDLL = lambda name, *more, **named: (
    Recorder(load(name, *more, **named)) if name is None else load(name, *more, **named)
)
import sklearn, torch  # these two change the process themselves
threads, environment, path = torch.get_num_threads(), dict(os.environ), list(sys.path)
handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
state, show = torch.get_rng_state(), warnings.showwarning
import alfa
for name in alfa.__all__:
    getattr(alfa, name)
def flushes():
    return (torch.full((4,), 1e-39) * 1.0).count_nonzero().item() == 0
unchanged = (
    (threads, environment, path) == (torch.get_num_threads(), dict(os.environ), sys.path)
    and handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    and torch.equal(state, torch.get_rng_state()) and warnings.showwarning is show
)
print(len(calls), flushes(), unchanged)
tuned = alfa.tune()
print(len(calls), flushes(), tuned.keeps_memory, tuned.flushes_denormals)
"""


@pytest.fixture(scope="module")
def printed_lines() -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    return [line.split() for line in done.stdout.splitlines()]


def test_importing_every_public_name_changes_nothing(printed_lines) -> None:
    assert printed_lines[0] == ["0", "False", "True"]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="this CPU may not flush denormals"
)
def test_tune_configures_the_allocator_and_flushes_denormals(printed_lines) -> None:
    assert printed_lines[1] == ["3", "True", "True", "True"]


def test_tune_reports_the_settings_in_effect() -> None:
    flushed = (torch.full((4,), 1e-39) * 1.0).count_nonzero().item() == 0
    try:
        assert alfa.tune() == alfa.tune()
    finally:
        torch.set_flush_denormal(flushed)
