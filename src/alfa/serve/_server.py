"""The web server, which only this computer can reach and which leaves no files."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from alfa.data import suppress_pillow_warnings
from alfa.errors import ConfigError
from alfa.serve._actions import Actions
from alfa.serve._model import Model, can_export
from alfa.serve._session import Session, Sessions
from alfa.serve._transfers import Transfers, add_routes

if TYPE_CHECKING:
    from fastapi import FastAPI

T = TypeVar("T")

HOST = "127.0.0.1"
# Seconds until open requests are aborted at shutdown.
_SHUTDOWN_SECONDS = 2
# Gradio and its dependencies must neither contact other hosts nor leave files.
_SETTINGS = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    # Do not compute event statistics with pandas.
    "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(sys.maxsize),
    "GRADIO_RUN_HISTORY": "False",
    "GRADIO_MCP_SERVER": "False",
    "GRADIO_SSR_MODE": "False",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}


def check_gradio() -> None:
    """Raise if gradio is not installed."""
    if importlib.util.find_spec("gradio") is None:
        raise ConfigError("the page needs gradio; run `pip install 'alfa[serve]'`.")


def bind(port: int) -> socket.socket:
    """Listen on a port of this computer, or on any free port for 0; raise if it is in use."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise ConfigError(
            f"port {port} of {HOST} cannot be used ({os.strerror(error.errno or 0)}); choose "
            "another --port, or --port 0 for any free port."
        ) from None


@dataclass(frozen=True)
class Server:
    """A running server: its address, the sessions of its users, and files in transit."""

    address: str
    sessions: Sessions
    transfers: Transfers


@contextmanager
def serving(run: Path | str, *, port: int = 0) -> Iterator[Server]:
    """Serve the page of a run within the context, on any free port by default."""
    check_gradio()
    model = Model.open(run)
    sessions, transfers = Sessions(lambda: Session(model)), Transfers()
    try:
        with bind(port) as listener, suppress_pillow_warnings():
            apps = _call_in_event_loop(lambda: _make_apps(model, sessions, transfers))
            model.warm_up()
            with _running(*apps, listener, transfers):
                address = f"http://{HOST}:{listener.getsockname()[1]}"
                yield Server(address, sessions, transfers)
    finally:
        shutil.rmtree(_folder(), ignore_errors=True)


@functools.cache
def _folder() -> Path:
    """Create one folder per process, because gradio uses the first one permanently."""
    return Path(tempfile.mkdtemp(prefix="alfa-serve-"))


def _make_apps(model: Model, sessions: Sessions, transfers: Transfers) -> tuple[FastAPI, Any]:
    """Create the ASGI application and the gradio application within it."""
    _folder().mkdir(mode=0o700, exist_ok=True)
    os.environ.update(_SETTINGS, GRADIO_TEMP_DIR=str(_folder()))
    import gradio as gr
    from fastapi import FastAPI

    from alfa.serve._guard import Guard
    from alfa.serve._html import static
    from alfa.serve._page import Page, theme

    page = Page(model, Actions(sessions, transfers), can_export=can_export())
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    add_routes(app, transfers, model)
    gr.mount_gradio_app(
        app,
        page.blocks,
        path="/",
        server_name=HOST,
        footer_links=[],
        favicon_path=str(Path(__file__).parent / "static" / "favicon.png"),
        show_error=False,
        enable_monitoring=False,
        pwa=False,
        theme=theme(),
        css=static("page.css"),
    )
    app.add_middleware(Guard)
    return app, app.routes[-1].app  # type: ignore[attr-defined]


def _call_in_event_loop(make: Callable[[], T]) -> T:
    """Call a function in an event loop; without one, gradio starts its own and never closes it."""

    async def call() -> T:
        return make()

    # The current thread may already run a loop, as in a notebook.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, call()).result()


@contextmanager
def _running(
    app: FastAPI, gradio_app: Any, listener: socket.socket, transfers: Transfers
) -> Iterator[None]:
    """Run the server in a thread, so that the main thread receives Ctrl-C."""
    import uvicorn

    async def expire() -> None:
        transfers.expire()

    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        ws="none",
        callback_notify=expire,
        timeout_notify=1,
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
        # Ends the heartbeat request of every browser.
        gradio_app.stop_event.set()
        server.should_exit = True
        thread.join(timeout=2 * _SHUTDOWN_SECONDS)
