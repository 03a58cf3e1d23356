"""The server of the page, on this computer only; it leaves no files."""

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
from alfa.serve._session import Session
from alfa.serve._sessions import Sessions
from alfa.serve._transfers import Transfers, add_routes

if TYPE_CHECKING:
    from fastapi import FastAPI

T = TypeVar("T")

HOST = "127.0.0.1"
# Seconds for open requests when the server ends.
_SHUTDOWN_SECONDS = 2
# Gradio and its dependencies must neither contact other hosts nor leave files.
_SETTINGS = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    # Do not compute statistics of events with pandas.
    "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(sys.maxsize),
    "GRADIO_SHARE": "False",
    "GRADIO_RUN_HISTORY": "False",
    "GRADIO_MCP_SERVER": "False",
    "GRADIO_SSR_MODE": "False",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}


def check_gradio() -> None:
    """Raise if gradio is not installed.

    Raises:
        ConfigError: says how to install it.
    """
    if importlib.util.find_spec("gradio") is None:
        raise ConfigError(
            "the page needs gradio, which is not installed; `pip install 'alfa[serve]'`."
        )


def bind(port: int) -> socket.socket:
    """Bind a port of this computer, or any free one for 0; raise if it is in use."""
    taken = socket.socket()
    # A port that was closed a moment ago can be used, one that is in use cannot.
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(os.name != "nt"))
    try:
        taken.bind((HOST, port))
        # Listen at once: two sockets can bind the same port as long as neither listens.
        taken.listen()
    except OSError as error:
        taken.close()
        raise ConfigError(
            f"port {port} of {HOST} cannot be used ({error.strerror}); choose another with "
            "--port, or any that is free with --port 0."
        ) from None
    return taken


@dataclass(frozen=True)
class Server:
    """A running server: the address of its page, and the sessions of its users."""

    address: str
    sessions: Sessions


@contextmanager
def serving(run: Path | str, *, port: int = 0) -> Iterator[Server]:
    """Serve the page of a run for as long as the context lasts.

    Args:
        run: a run folder.
        port: of this computer; 0 for any that is free.

    Raises:
        AlfaError: the run or the port cannot be used, or gradio is missing.
    """
    check_gradio()
    model = Model.open(run)
    with bind(port) as taken, _temporary_folder() as folder, suppress_pillow_warnings():
        sessions = Sessions(lambda: Session(model))
        app, gradio_app = _call_in_event_loop(lambda: make_app(model, sessions, folder=folder))
        model.warm_up()
        with _running(app, gradio_app, taken):
            yield Server(f"http://{HOST}:{taken.getsockname()[1]}", sessions)


@functools.cache
def _folder() -> Path:
    """One folder per process, because gradio remembers the first."""
    return Path(tempfile.mkdtemp(prefix="alfa-serve-"))


@contextmanager
def _temporary_folder() -> Iterator[str]:
    _folder().mkdir(mode=0o700, exist_ok=True)
    try:
        yield str(_folder())
    finally:
        shutil.rmtree(_folder(), ignore_errors=True)


def make_app(model: Model, sessions: Sessions, *, folder: str) -> tuple[FastAPI, Any]:
    """Make the ASGI application, and gradio's own within it, which may write into `folder`."""
    os.environ.update(_SETTINGS, GRADIO_TEMP_DIR=folder)
    import gradio as gr
    from fastapi import FastAPI

    from alfa.serve._guard import Guard
    from alfa.serve._html import static
    from alfa.serve._page import build, theme

    transfers = Transfers()
    page = build(model, Actions(sessions, transfers, can_export=can_export()))
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    add_routes(app, transfers, model)
    favicon = Path(__file__).parent / "static" / "favicon.png"
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        server_name=HOST,
        footer_links=[],
        run_history=False,
        favicon_path=str(favicon),
        show_error=False,
        enable_monitoring=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        theme=theme(),
        css=static("page.css"),
    )
    app.add_middleware(Guard)
    return app, app.routes[-1].app  # type: ignore[attr-defined]


def _call_in_event_loop(make: Callable[[], T]) -> T:
    """Call a function inside an event loop; otherwise gradio starts one and never closes it."""

    async def call() -> T:
        return make()

    # In a thread, because this one may run a loop already, as in a notebook.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, call()).result()


@contextmanager
def _running(app: FastAPI, gradio_app: Any, taken: socket.socket) -> Iterator[None]:
    """Run the server in a thread, so that the main thread receives Ctrl-C."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        ws="none",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        if not server.started:
            raise ConfigError("the server did not start; try another --port.")
        yield
    finally:
        # Ends the request that each browser holds open.
        gradio_app.stop_event.set()
        server.should_exit = True
        thread.join(timeout=2 * _SHUTDOWN_SECONDS)
