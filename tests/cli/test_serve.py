"""The command `alfa serve`; tests/serve covers the page."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alfa.serve._server import bind


@pytest.fixture
def run(characters_run: Path) -> Path:
    return characters_run


def test_without_gradio_one_sentence_says_what_to_install(
    refused: Callable[..., str], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'alfa[serve]'" in refused("serve", run)


def test_what_cannot_be_served_is_refused(
    refused: Callable[..., str], run: Path, curves_run: Path, tmp_path: Path
) -> None:
    pytest.importorskip("gradio")
    assert "is not a run" in refused("serve", tmp_path)
    assert "was not trained on image classification" in refused("serve", curves_run)
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
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    pytest.importorskip("gradio")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    heard = threading.Event()

    def visit() -> None:
        while not opened:
            time.sleep(0.01)
        # An open page in a browser does not keep the server running.
        with urllib.request.urlopen(f"{opened[0]}/gradio_api/heartbeat/me", timeout=10) as held:
            if held.readline() == b"data: ALIVE\n":
                heard.set()
            os.kill(os.getpid(), number)
            held.read()

    visitor = threading.Thread(target=visit, daemon=True)
    visitor.start()
    answer = alfa("serve", run, "--port", 0, "--open")
    visitor.join(timeout=10)
    assert heard.is_set()
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"{run} is at {opened[0]} (press Ctrl-C to stop)\n"
    assert not Path(os.environ["GRADIO_TEMP_DIR"]).exists()
    # The port is free again.
    bind(int(opened[0].rsplit(":", 1)[1])).close()
