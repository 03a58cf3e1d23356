"""What the tests of the operations share."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from alfa.ops import _compiled, _winograd


@pytest.fixture(scope="session")
def printed() -> Callable[..., list[int]]:
    """The numbers that a program prints in a process of its own, with a switch set or not."""

    def run(program: str, switch: str, *, value: str | None = None) -> list[int]:
        environment = {name: text for name, text in os.environ.items() if name != switch}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment if value is None else {**environment, switch: value},
            capture_output=True,
            text=True,
            check=True,
        )
        return [int(word) for word in done.stdout.split()]

    return run


@pytest.fixture(params=["compiled", "torch"])
def way(request, monkeypatch) -> str:
    """Compiled kernels, or torch in their place; or after Winograd, where asked for.

    Then all products of convolutions are, however small they are, and one example at a time.
    """
    if request.param == "torch":
        monkeypatch.setattr(_compiled, "numba_available", lambda: False)
    if request.param == "winograd":
        for name in ("_MIN_CHANNELS", "_MIN_TILES", "_MAX_VALUES"):
            monkeypatch.setattr(_winograd, name, 1)
        monkeypatch.setattr(_winograd, "_MIN_INSIDE", 0)
    return request.param
