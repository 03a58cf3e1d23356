"""The command `alfa serve`; tests/serve covers the server."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TOKEN = "0123456789abcdef"


@pytest.fixture
def run(characters_run: Path) -> Path:
    return characters_run


def test_a_missing_package_says_what_to_install(
    refused: Callable[..., str], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'alfa[serve]'" in refused("serve", run)


def test_invalid_arguments_are_refused(
    refused: Callable[..., str], run: Path, curves_run: Path, tmp_path: Path
) -> None:
    pytest.importorskip("fastapi_offline")
    assert "is not a run" in refused("serve", tmp_path)
    assert "was not trained on image classification" in refused("serve", curves_run)
    assert "`token` is required for the host 0.0.0.0" in refused("serve", run, "--host", "0.0.0.0")
    assert "at least 16" in refused("serve", run, "--token", "short")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert f"port {port} of 127.0.0.1 cannot be used" in refused("serve", run, "--port", port)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_stopped_and_leaves_nothing(
    alfa: Callable[..., Any],
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    httpx = pytest.importorskip("httpx2")
    pytest.importorskip("fastapi_offline")
    opened: list[str] = []
    found: list[int] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("ALFA_TOKEN", TOKEN)

    def visit() -> None:
        while not opened:
            time.sleep(0.01)
        with httpx.Client(trust_env=False, follow_redirects=True) as web:
            found.append(web.get(opened[0]).status_code)
            # An open connection does not keep the server running.
            os.kill(os.getpid(), number)
            time.sleep(0.2)

    visitor = threading.Thread(target=visit, daemon=True)
    visitor.start()
    answer = alfa("serve", run, "--port", 0, "--open", "--threads", 1)
    visitor.join(timeout=10)
    assert found == [200]
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"the page is at {opened[0]} (press Ctrl-C to stop)\n"
    port = int(re.fullmatch(rf"http://127\.0\.0\.1:(\d+)/\?token={TOKEN}", opened[0])[1])  # type: ignore[index]
    assert list(tmp_path.iterdir()) == []
    # The port is free again.
    socket.create_server(("127.0.0.1", port)).close()
