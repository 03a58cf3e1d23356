"""The server as seen by a browser."""

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
from alfa.serve._server import HOST, bind


def _status(address: str) -> int:
    try:
        # Ignore proxy settings of the machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(address, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_page_contacts_no_other_host(address: str, connections: list[Any]) -> None:
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


def test_a_bound_port_is_reserved() -> None:
    with bind(0) as first:
        # Other computers cannot reach it.
        host, port = first.getsockname()
        assert host == HOST == "127.0.0.1"
        with pytest.raises(ConfigError, match="cannot be used"):
            bind(port)


def test_a_port_in_use_raises(run: Path) -> None:
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
