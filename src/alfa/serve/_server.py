"""The HTTP server."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from alfa.data import suppress_pillow_warnings
from alfa.errors import ConfigError
from alfa.serve._app import make_app
from alfa.serve._limits import Limits

# Seconds until open requests are aborted at shutdown.
_SHUTDOWN_SECONDS = 2
# Addresses that stand for all interfaces of this computer.
_WILDCARDS = ("0.0.0.0", "::")
# Connections at which the server rejects further requests.
_MAX_CONNECTIONS = 500


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        address: address of the page.
        app: ASGI application.
        token: secret that requests must have; None for no token.
    """

    address: str
    app: FastAPI
    token: str | None = field(default=None, repr=False)

    @property
    def login(self) -> str:
        """The address that logs a browser in."""
        return f"{self.address}/" + (f"?token={self.token}" if self.token else "")


def make_protocol(header_seconds: float) -> type[H11Protocol]:
    """Return a protocol that closes a connection without complete headers after some seconds."""

    class Protocol(H11Protocol):
        """Limits the time for headers; uvicorn limits only the time between two requests."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            # asyncio omits this for `socket.create_server`, and the body of a response would wait
            # 40 ms for the client to acknowledge the headers.
            own = transport.get_extra_info("socket")
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            super().connection_lost(exc)

        def _watch(self) -> None:
            """Start the timer while no request is in progress; parts of headers do not reset it."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._disarm()
            elif self._deadline is None:
                self._deadline = self.loop.call_later(header_seconds, self.transport.abort)

        def _disarm(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Protocol


def bind(host: str, port: int) -> socket.socket:
    """Listen on a port of this computer, or on any free port for 0; raise if it is in use."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(
            f"port {port} of {host} cannot be used ({os.strerror(error.errno or 0)}); choose "
            "another --port, or --port 0 for any free port."
        ) from None


def is_loopback(host: str) -> bool:
    """Return whether only this computer can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def run_server(
    run: Path | str | None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    hosts: Sequence[str] = (),
    limits: Limits | None = None,
) -> Iterator[Server]:
    """Serve a run within the context; see `alfa.serve.serving`."""
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"`token` is required for the host {host}, because other computers can reach it; use "
            f"--token {secrets.token_hex(16)}, for example, or omit --host."
        )
    limits = limits or Limits()
    with bind(host, port) as listener, suppress_pillow_warnings():
        names = [*hosts, host, socket.gethostname()]
        app = make_app(run, token=token, hosts=names, limits=limits)
        with _running(app, listener, limits):
            name = socket.gethostname() if host in _WILDCARDS else host
            name = f"[{name}]" if ":" in name else name
            yield Server(f"http://{name}:{listener.getsockname()[1]}", app, token)


@contextmanager
def _running(app: FastAPI, listener: socket.socket, limits: Limits) -> Iterator[None]:
    """Run the server in a thread, so that the main thread receives Ctrl-C."""
    config = uvicorn.Config(
        app,
        http=make_protocol(limits.header_seconds),
        ws="none",
        loop="asyncio",
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        if not server.started:
            raise ConfigError("the server did not start; try another --port.")
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=2 * _SHUTDOWN_SECONDS)
