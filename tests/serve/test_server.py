"""The server, as a browser sees it."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from alfa.errors import ConfigError
from alfa.serve import serving
from alfa.serve._limits import MAX_FILE
from alfa.serve._server import HOST, bind


def _status(address: str, *, data: bytes | None = None) -> int:
    try:
        # Not by way of a proxy that the tester may have.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(address, data=data), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_page_is_there_and_asks_nobody_else(address: str, connections: list[Any]) -> None:
    assert address.startswith(f"http://{HOST}:")
    with urllib.request.urlopen(f"{address}/config", timeout=10) as answer:
        config = json.load(answer)
    assert config["analytics_enabled"] is False
    assert config["run_history"] is False
    assert config["footer_links"] == []
    assert config["stylesheets"] == []
    assert config["connect_heartbeat"] is True
    for path in ("/gradio_api/info", "/docs", "/gradio_api/file=/etc/hostname"):
        assert _status(address + path) == 404
    hosts = {where[0] for where in connections if isinstance(where, tuple)}
    assert hosts == {HOST}


def test_files_come_within_limits_and_go_once(address: str) -> None:
    files = f"{address}/alfa/files"
    request = urllib.request.Request(f"{files}?name=a.png&kind=picture", data=b"content")
    with urllib.request.urlopen(request, timeout=10) as answer:
        token = json.load(answer)["token"]
    with urllib.request.urlopen(f"{files}/{token}", timeout=10) as answer:
        assert answer.read() == b"content"
        assert answer.headers["Content-Disposition"] == 'attachment; filename="a.png"'
    assert _status(f"{files}/{token}") == 404
    assert _status(f"{files}?name=a.png&kind=picture", data=bytes(MAX_FILE + 1)) == 413
    assert _status(f"{files}?name=a.zip&kind=examples", data=bytes(MAX_FILE + 1)) == 200


def test_a_port_in_use_is_named(run: Path) -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 cannot be used"),
            serving(run, port=port),
        ):
            pass
    bind(port).close()
