"""Errors of the API in one format, RFC 9457 (`application/problem+json`)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from alfa.errors import AlfaError

_MEDIA_TYPE, _TEXT = "application/problem+json", {"type": "string"}
SCHEMA = {
    "title": "Problem",
    "type": "object",
    "properties": {
        "status": {"type": "integer"},
        "code": _TEXT,
        "title": _TEXT,
        "detail": _TEXT,
        "field": {"type": ["string", "null"]},
    },
    "required": ["status", "code", "title", "detail", "field"],
}


class Problem(HTTPException):
    """An error that a client can fix: a status, a code, a sentence, and the invalid field."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, headers)
        self.code, self.field = code, field

    def response(self) -> Response:
        status = self.status_code
        content = {"status": status, "code": self.code, "title": HTTPStatus(status).phrase}
        content |= {"detail": self.detail, "field": self.field}
        return JSONResponse(content, status, self.headers, _MEDIA_TYPE)


def busy(detail: str, *, seconds: int = 2) -> Problem:
    """Return the error for a request that the client should repeat later."""
    return Problem(429, "busy", detail, headers={"Retry-After": str(seconds)})


def unknown(kind: str, value: str) -> Problem:
    """Return the error for a session, class, or example that does not exist."""
    return Problem(404, f"unknown-{kind}", f"there is no {kind} {value!r}; it may be deleted.")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe errors for the OpenAPI document."""
    content = {_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {n: {"description": HTTPStatus(n).phrase, "content": content} for n in statuses}


def add_handlers(app: FastAPI) -> None:
    """Make an application answer every error in this format."""

    async def answer(request: Request, error: Exception) -> Response:
        return _as_problem(request, error).response()

    kinds = (HTTPException, RequestValidationError, AlfaError, ClientDisconnect, Exception)
    for kind in kinds:
        app.add_exception_handler(kind, answer)


def _as_problem(request: Request, error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case HTTPException():
            code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
            about = f"{request.method} {request.url.path}"
            detail = f"{about}: {error.detail.lower()}."
            return Problem(error.status_code, code, detail, headers=error.headers)
        case RequestValidationError():
            first = error.errors()[0]
            names = [str(name) for name in first["loc"] if name not in ("body", "query", "path")]
            field = ".".join(names) or None
            reason = first["msg"][:1].lower() + first["msg"][1:]
            about = f"`{field}`" if field else "the body of the request"
            return Problem(422, "invalid", f"{about} is invalid: {reason}.", field=field)
        case AlfaError():
            return Problem(422, "invalid", str(error))
        case ClientDisconnect():
            # No client reads this response.
            return Problem(400, "disconnected", "the client closed the connection.")
    return Problem(500, "failed", "the server failed; its log has the reason.")
