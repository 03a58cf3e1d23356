"""Entry points, which import the web framework on first use because it is optional."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from alfa.errors import ConfigError
from alfa.serve._limits import Limits

if TYPE_CHECKING:
    from fastapi import FastAPI

    from alfa.serve._server import Server

_REQUIRED = ("fastapi", "fastapi_offline", "python_multipart", "uvicorn")


def check_installed() -> None:
    """Raise if a package of the server is not installed."""
    missing = [name for name in _REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the server needs {' and '.join(missing)}; run `pip install 'alfa[serve]'`."
        )


def create_app(
    run: Path | str | None = None,
    *,
    token: str | None = None,
    hosts: Sequence[str] = (),
    any_address: bool = False,
    limits: Limits | None = None,
) -> FastAPI:
    """Create an ASGI application with the API and the page.

    Any ASGI server can run it, and any ASGI application can mount it at a path. `serving` also
    limits the time for the headers of a request, which an application cannot.

    Args:
        run: folder of a trained run, or name of a pretrained model, for new sessions; by default
            ``"photos"`` if its weights are installed, and otherwise ``"strokes"``.
        token: secret that requests must have, of at least 16 characters. Without it, every client
            that can reach the server has access.
        hosts: host names of the server in addition to those of the loopback interface.
        any_address: also accept requests to an IP address other than the loopback interface's.
        limits: limits of requests and sessions.

    Raises:
        AlfaError: if the run cannot be served, or the extra `serve` is not installed.

    Examples:
        >>> import tempfile
        >>> from alfa.serve import create_app
        >>> from alfa.testing import small_run
        >>> app = create_app(small_run(tempfile.mkdtemp()))
        >>> app.title
        'alfa'
    """
    check_installed()
    from alfa.serve._app import make_app

    return make_app(
        run, token=token, hosts=hosts, any_address=any_address, limits=limits or Limits()
    )


def serving(
    run: Path | str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    hosts: Sequence[str] = (),
    limits: Limits | None = None,
) -> AbstractContextManager[Server]:
    """Return a context manager that runs the server in a thread.

    Args:
        run: as for `create_app`.
        host: address to listen on; any other than the loopback interface's requires a `token`.
        port: port to listen on; 0 selects a free one.
        token: as for `create_app`.
        hosts: as for `create_app`.
        limits: limits of requests and sessions.
    """
    check_installed()
    from alfa.serve._server import run_server

    return run_server(
        run, host=host, port=port, token=token, hosts=hosts, limits=limits or Limits()
    )
