"""Errors of the API in one format, RFC 9457 (`application/problem+json`)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from alfa.errors import AlfaError

MEDIA_TYPE = "application/problem+json"


class Problem(HTTPException):
    """An error that a client can fix.

    Attributes:
        status_code: HTTP status.
        code: identifier of the kind of error.
        detail: one clear sentence.
        field: the invalid field of the request, if any.
        headers: headers of the response.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code, self.field = code, field

    def response(self) -> Response:
        content = ProblemView(
            status=self.status_code,
            code=self.code,
            title=HTTPStatus(self.status_code).phrase,
            detail=self.detail,
            field=self.field,
        )
        return JSONResponse(
            content.model_dump(), self.status_code, headers=self.headers, media_type=MEDIA_TYPE
        )


class ProblemView(BaseModel):
    """An error."""

    status: int
    code: str
    title: str
    detail: str
    field: str | None


def busy(detail: str, *, seconds: int = 2) -> Problem:
    """Return the error for a request that the client should repeat later."""
    return Problem(429, "busy", detail, headers={"Retry-After": str(seconds)})


def unknown(kind: str, value: str) -> Problem:
    """Return the error for a session, class, or photo that does not exist."""
    return Problem(404, f"unknown-{kind}", f"there is no {kind} {value!r}; it may be deleted.")


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of errors for the OpenAPI documentation."""
    schema = {"$ref": "#/components/schemas/ProblemView"}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
        for status in statuses
    }


def add_handlers(app: FastAPI) -> None:
    """Make an application answer every error in this format."""

    async def on_problem(request: Request, error: Problem) -> Response:
        return error.response()

    async def on_alfa_error(request: Request, error: AlfaError) -> Response:
        return Problem(422, "invalid", str(error)).response()

    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        names = [str(name) for name in first["loc"] if name not in ("body", "query", "path")]
        field = ".".join(names) or None
        about = f"`{field}`" if field else "the body of the request"
        reason = first["msg"][:1].lower() + first["msg"][1:]
        return Problem(422, "invalid", f"{about} is invalid: {reason}.", field=field).response()

    async def on_http(request: Request, error: HTTPException) -> Response:
        code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
        path = request.url.path
        detail = {
            404: f"there is nothing at {path}.",
            405: f"{path} does not support {request.method}.",
        }.get(error.status_code, f"{error.detail}.")
        return Problem(error.status_code, code, detail, headers=error.headers).response()

    async def on_disconnect(request: Request, error: ClientDisconnect) -> Response:
        # No client reads this response.
        return Problem(400, "disconnected", "the client closed the connection.").response()

    async def on_failure(request: Request, error: Exception) -> Response:
        return Problem(500, "failed", "the server failed; its log has the reason.").response()

    handlers: list[tuple[Any, Any]] = [
        (Problem, on_problem),
        (AlfaError, on_alfa_error),
        (RequestValidationError, on_invalid),
        (HTTPException, on_http),
        (ClientDisconnect, on_disconnect),
        (Exception, on_failure),
    ]
    for kind, handler in handlers:
        app.add_exception_handler(kind, handler)
