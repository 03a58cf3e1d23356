"""The ASGI application."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

import alfa
from alfa.errors import ConfigError
from alfa.serve import _classifier_routes as classifier_routes
from alfa.serve import _routes as routes
from alfa.serve._guard import Guard
from alfa.serve._limits import Limits
from alfa.serve._model import open_models
from alfa.serve._problem import SCHEMA, add_handlers
from alfa.serve._service import Service

_ROOT = Path(__file__).parent


def make_app(
    run: Path | str | None,
    *,
    token: str | None = None,
    hosts: Sequence[str] = (),
    limits: Limits | None = None,
) -> FastAPI:
    """Create the application; see `alfa.serve.create_app`."""
    if token is not None and not re.fullmatch(r"[\w-]{16,}", token, re.ASCII):
        raise ConfigError(
            "`token` must have at least 16 letters, digits, hyphens, or underscores; create one "
            "with `openssl rand -hex 16`."
        )
    limits = limits or Limits()
    service = Service(open_models(run), limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        yield
        service.close()

    app = FastAPI(
        title="alfa",
        version=alfa.__version__,
        summary="Teach a classifier a few photos of each class.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service = service
    add_handlers(app)
    app.include_router(routes.router)
    app.include_router(classifier_routes.router)
    _add_pages(app)
    _describe_problems(app)
    app.add_middleware(Guard, hosts=hosts, token=token, limits=limits)
    return app


def _add_pages(app: FastAPI) -> None:
    """Add the page, the documentation, and their files."""
    static, docs = _ROOT / "static", _ROOT / "docs"

    @app.get("/", include_in_schema=False)
    async def show_page() -> Response:
        return FileResponse(static / "page.html")

    @app.get("/docs", include_in_schema=False)
    async def show_docs() -> Response:
        return FileResponse(docs / "index.html")

    app.mount("/static", StaticFiles(directory=static))
    # This package ships the files of Swagger UI.
    app.mount("/docs/ui", StaticFiles(packages=[("fastapi_offline", "static")]))
    app.mount("/docs", StaticFiles(directory=docs))


def _describe_problems(app: FastAPI) -> None:
    """Add the format of errors to the OpenAPI document."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        document = describe()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas["Problem"] = SCHEMA
        return document

    app.openapi = openapi  # type: ignore[method-assign]
