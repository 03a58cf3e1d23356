"""The server of the page: on this computer only, and without a trace when it ends."""

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

from alfa.data._workers import quiet_pillow
from alfa.errors import ConfigError
from alfa.serve._actions import Actions
from alfa.serve._export import exporter
from alfa.serve._files import add_files
from alfa.serve._guard import Guard
from alfa.serve._model import Model
from alfa.serve._people import Counter, People
from alfa.serve._session import Session

if TYPE_CHECKING:
    from fastapi import FastAPI

T = TypeVar("T")

HOST = "127.0.0.1"
# Seconds that requests which are under way have, when the server ends.
_PATIENCE = 2
# Gradio and what it brings along must not tell anybody anything, nor leave files about.
_SETTINGS = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    # Nor count, with pandas, how long every press of a button took.
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
    """Raise if the extra that the page needs is not installed.

    Raises:
        ConfigError: says how to install it.
    """
    if importlib.util.find_spec("gradio") is None:
        raise ConfigError(
            "the page needs gradio, which is not installed; `pip install 'alfa[serve]'`."
        )


def bind(port: int) -> socket.socket:
    """Take a port of this computer.

    Args:
        port: its number; 0 for any that is free.

    Raises:
        ConfigError: somebody else has it.
    """
    taken = socket.socket()
    # One that was closed a moment ago can be taken, one that is in use cannot.
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(os.name != "nt"))
    try:
        taken.bind((HOST, port))
        # At once, because two can bind the same port for as long as neither listens.
        taken.listen()
    except OSError as error:
        taken.close()
        raise ConfigError(
            f"port {port} of {HOST} cannot be used ({error.strerror}); choose another with "
            "--port, or any that is free with --port 0."
        ) from None
    return taken


@dataclass(frozen=True)
class Page:
    """A page that is served.

    Attributes:
        address: where a browser finds it.
        people: who has it open.
    """

    address: str
    people: People


@contextmanager
def serving(run: Path | str, *, port: int = 0) -> Iterator[Page]:
    """Serve the page of a run for as long as the context lasts.

    Args:
        run: a run folder.
        port: of this computer; 0 for any that is free.

    Raises:
        AlfaError: the run or the port cannot be used, or gradio is missing.
    """
    check_gradio()
    model = Model.open(run)
    with (
        bind(port) as taken,
        _private_folder() as folder,
        quiet_pillow(),
    ):
        people = People(lambda: Session(model))
        app, gradio_app = _within_a_loop(lambda: make_app(model, people, folder=folder))
        model.warm_up()
        address = f"http://{HOST}:{taken.getsockname()[1]}"
        with _running(app, gradio_app, taken):
            yield Page(address, people)


@functools.cache
def _folder() -> Path:
    """One for a process: gradio remembers the first that it was told of, and makes it anew."""
    return Path(tempfile.mkdtemp(prefix="alfa-serve-"))


@contextmanager
def _private_folder() -> Iterator[str]:
    """A folder that nobody else can read, and that is gone afterwards."""
    _folder().mkdir(mode=0o700, exist_ok=True)
    try:
        yield str(_folder())
    finally:
        shutil.rmtree(_folder(), ignore_errors=True)


def make_app(model: Model, people: People, *, folder: str) -> tuple[FastAPI, Any]:
    """The page as an ASGI application, and gradio's own within it.

    Args:
        model: that is served.
        people: to whom.
        folder: where gradio may put files; nothing of the page's own is ever written there.
    """
    os.environ.update(_SETTINGS, GRADIO_TEMP_DIR=folder)
    import gradio as gr
    from fastapi import FastAPI

    from alfa.serve._page import build, theme
    from alfa.serve._widgets import static

    counter = Counter()
    page = build(model, Actions(people, counter, export=exporter()))
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    add_files(app, counter, model)
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


def _within_a_loop(make: Callable[[], T]) -> T:
    """Call something where an event loop runs, or gradio would leave loops of its own behind."""

    async def made() -> T:
        return make()

    # In a thread, because a loop may run in this one already, as in a notebook.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, made()).result()


@contextmanager
def _running(app: FastAPI, gradio_app: Any, taken: socket.socket) -> Iterator[None]:
    """A server in a thread of its own, so that this one hears of Ctrl-C."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_PATIENCE,
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
        # Browsers hold a request open for as long as the page is.
        gradio_app.stop_event.set()
        server.should_exit = True
        thread.join(timeout=2 * _PATIENCE)
