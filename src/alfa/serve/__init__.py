"""An HTTP API, and a web page on top of it, that learn classes from a few photos of each."""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alfa.errors import ConfigError
from alfa.serve._limits import Limits

if TYPE_CHECKING:
    from fastapi import FastAPI

    from alfa.serve._server import Server

__all__ = ["Limits", "check_installed", "create_app", "serving"]

_REQUIRED = ("fastapi", "fastapi_offline", "python_multipart", "uvicorn")


def check_installed() -> None:
    """Raise if a package of the server is not installed."""
    missing = [name for name in _REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the server needs {' and '.join(missing)}; run `pip install 'alfa[serve]'`."
        )


def create_app(run: Path | str | None = None, **options: Any) -> FastAPI:
    """Create an ASGI application with the API and the page.

    Any ASGI server can run it, and any ASGI application can mount it at a path. `serving` also
    limits the time for the headers of a request, which an application cannot.

    Args:
        run: folder of a trained run, or name of a pretrained model, for new sessions; by default
            ``"photos"`` if its weights are installed, and otherwise ``"strokes"``.
        options: ``token``, a secret of at least 16 characters that requests must have; ``hosts``,
            names of the server in addition to ``localhost``; and ``limits``, a `Limits`.

    Raises:
        AlfaError: if the run cannot be served, or the extra `serve` is not installed.

    Examples:
        >>> import tempfile
        >>> from alfa.serve import create_app
        >>> from alfa.testing import small_run
        >>> create_app(small_run(tempfile.mkdtemp()), hosts=["photos.example.org"]).title
        'alfa'
    """
    check_installed()
    from alfa.serve._app import make_app

    return make_app(run, **options)


def serving(run: Path | str | None = None, **options: Any) -> AbstractContextManager[Server]:
    """Return a context manager that runs the server in a thread.

    Args:
        run: as for `create_app`.
        options: the options of `create_app`; ``host``, the address to listen on, which requires a
            ``token`` unless it is the loopback interface; and ``port``, 0 for any free one.
    """
    check_installed()
    from alfa.serve._server import run_server

    return run_server(run, **options)
