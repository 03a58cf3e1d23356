"""All threads treat denormal numbers as 0, unless that is disabled."""

from __future__ import annotations

import pytest
import torch

from alfa import _runtime
from alfa._runtime import flush_denormals

PROGRAM = """
import torch
from alfa._runtime import flush_denormals
flush_denormals()

torch.set_num_threads(2)
# Large enough for both threads.
tiny = torch.full((2_000_000,), 1e-39)
product = torch.full((8, 32, 64, 64), 1e-20), torch.full((32, 32, 3, 3), 1e-20)
found = [int(torch.count_nonzero(tiny + tiny)), int(torch.count_nonzero(torch.conv2d(*product)))]
print(int(flush_denormals()), *found)
"""
can = pytest.mark.skipif(
    not torch.set_flush_denormal(flush_denormals()),
    reason="this CPU cannot flush denormal numbers",
)


@can
def test_all_threads_take_them_for_zero(printed) -> None:
    assert printed(PROGRAM, _runtime.FLUSH_DENORMALS) == [1, 0, 0]


@can
def test_it_can_be_switched_off(printed) -> None:
    said, added, convolved = printed(PROGRAM, _runtime.FLUSH_DENORMALS, value="0")
    assert said == 0
    assert added == 2_000_000
    assert convolved > 0
