"""Fixtures that run the command line in this process and in others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from alfa.cli.main import main

_CODE = "import sys; from alfa.cli.main import main; main(sys.argv[1:])"

TINY = (
    "outer.num_iterations=20",
    "outer.max_skipped=0",
    "outer.validate_every=5",
    "outer.num_val_tasks=4",
    "test.num_tasks=5",
    "model.hidden=[8]",
    "tasks.num_query=10",
)
SETTINGS = [word for setting in TINY for word in ("--set", setting)]


@dataclass(frozen=True)
class Answer:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the terminal width, and restore the number of threads that commands change."""
    monkeypatch.setenv("TERMINAL_WIDTH", "100")
    monkeypatch.setenv("COLUMNS", "100")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def alfa(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Run a command in this process."""

    def run(*arguments: str | Path) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Answer(caught.value.code, out, err)

    return run


@pytest.fixture
def refused(alfa: Callable[..., Answer]) -> Callable[..., str]:
    """Run a command that must fail with one sentence, and return the sentence."""

    def run(*arguments: str | Path) -> str:
        answer = alfa(*arguments)
        assert answer.code == 2
        assert answer.out == ""
        assert answer.err.startswith("alfa: ")
        assert answer.err.count("\n") == 1
        assert "Traceback" not in answer.err
        return answer.err

    return run


def _shell(*arguments: str | Path, **options: Any) -> Answer:
    done = subprocess.run(
        [sys.executable, "-c", _CODE, *(str(argument) for argument in arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def shell() -> Callable[..., Answer]:
    """Run a command in a separate process."""
    return _shell


@pytest.fixture(scope="session")
def settings() -> list[str]:
    """Options that make an experiment small."""
    return list(SETTINGS)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run; do not change it."""
    path = tmp_path_factory.mktemp("trained") / "run"
    with pytest.raises(SystemExit) as caught:
        main(["train", "sinusoid", "--out", str(path), *SETTINGS, "--json"])
    assert caught.value.code == 0
    return path


@pytest.fixture(scope="session")
def contents() -> Callable[[Path], dict[str, bytes | None]]:
    """Every file and folder below a path, with its content."""

    def read(path: Path) -> dict[str, bytes | None]:
        return {
            os.path.relpath(entry, path): entry.read_bytes() if entry.is_file() else None
            for entry in sorted(path.rglob("*"))
        }

    return read
