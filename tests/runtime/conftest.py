"""Fixtures for tests of the process."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def printed() -> Callable[..., list[int]]:
    """Run a program in a new process, with or without a switch; return the numbers it prints."""

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
