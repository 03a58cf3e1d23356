"""Parts of requests that several endpoints share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request
from pydantic import BaseModel, ConfigDict

from alfa.serve._problem import responses
from alfa.serve._service import Service
from alfa.serve._session import Session

PREFIX = "/api/v1"
# Errors that every endpoint below a session can return.
PROBLEMS = responses(400, 401, 403, 404, 408, 413, 422)


def get_service(request: Request) -> Service:
    """Return the state of the server."""
    service: Service = request.app.state.service
    return service


Server = Annotated[Service, Depends(get_service)]


async def find_session(session_id: str, service: Server) -> Session:
    """Return the session of a path."""
    return service.sessions.get(session_id)


Found = Annotated[Session, Depends(find_session)]
Batch = Annotated[
    str | None,
    Query(min_length=1, max_length=64, description="Uploads of one batch are undone together."),
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewSession(_Request):
    """The options of a new session; `model` is a name from `GET /models`."""

    model: str | None = None


class ModelChange(_Request):
    """The new model of a session."""

    model: str


class ClassName(_Request):
    """The name of a class."""

    name: str


class NewClass(_Request):
    """The new class of a photo."""

    class_id: str
