"""Endpoints for the server, sessions, classes, and examples."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request, Response

import alfa
from alfa.errors import AlfaError
from alfa.serve import _requests as requests
from alfa.serve._files import load_examples
from alfa.serve._problem import Problem, responses
from alfa.serve._requests import Found, Server
from alfa.serve._service import Service
from alfa.serve._session import Session
from alfa.serve._uploads import BODY, receiving
from alfa.serve._views import (
    AddedView,
    HealthView,
    ModelsView,
    RefusedView,
    SessionView,
    view_models,
    view_session,
)

router = APIRouter(prefix=requests.PREFIX, responses=requests.PROBLEMS)
_UPLOAD: dict[str, Any] = {"openapi_extra": BODY, "responses": responses(415, 429)}
# The content of an identifier never changes.
_IMMUTABLE = {"Cache-Control": "private, max-age=86400, immutable"}


@router.get("/health", tags=["server"])
async def get_health(service: Server) -> HealthView:
    """Return the state of the server."""
    return HealthView(
        status="ok",
        version=alfa.__version__,
        models_loaded=service.models.loaded,
        num_sessions=len(service.sessions),
    )


@router.get("/models", tags=["server"])
async def list_models(service: Server) -> ModelsView:
    """List the models that a session can use, and the limits."""
    return view_models(service.models, service.limits)


@router.post("/sessions", status_code=201, tags=["sessions"], responses=responses(409, 429))
async def create_session(
    service: Server,
    request: Request,
    response: Response,
    body: requests.NewSession | None = None,
) -> SessionView:
    """Create a session without classes."""
    name = (body and body.model) or service.models.default
    session = service.sessions.create(await service.load_model(name))
    response.headers["Location"] = _path(request, session.id)
    return view_session(session)


@router.get("/sessions/{session_id}", tags=["sessions"])
async def get_session(session: Found) -> SessionView:
    """Return a session."""
    return view_session(session)


@router.patch("/sessions/{session_id}", tags=["sessions"], responses=responses(409))
async def change_model(session: Found, service: Server, body: requests.ModelChange) -> SessionView:
    """Use another model, which embeds all photos again."""
    await service.change_model(session, body.model)
    return view_session(session)


@router.delete("/sessions/{session_id}", status_code=204, tags=["sessions"])
async def delete_session(session: Found, service: Server) -> None:
    """Delete a session and its photos."""
    service.sessions.delete(session.id)


@router.post("/sessions/{session_id}/undo", tags=["sessions"], responses=responses(409))
async def undo(session: Found) -> SessionView:
    """Undo the last change of classes and examples."""
    session.undo()
    return view_session(session)


@router.post(
    "/sessions/{session_id}/classes",
    status_code=201,
    tags=["classes"],
    responses=responses(409),
)
async def add_class(
    session: Found, request: Request, response: Response, body: requests.ClassName
) -> SessionView:
    """Add a class."""
    added = session.add_class(body.name)
    response.headers["Location"] = _path(request, session.id, "classes", added.id)
    return view_session(session)


@router.patch(
    "/sessions/{session_id}/classes/{class_id}", tags=["classes"], responses=responses(409)
)
async def rename_class(session: Found, class_id: str, body: requests.ClassName) -> SessionView:
    """Rename a class."""
    session.rename(class_id, body.name)
    return view_session(session)


@router.delete("/sessions/{session_id}/classes/{class_id}", tags=["classes"])
async def delete_class(session: Found, class_id: str) -> SessionView:
    """Delete a class and its examples."""
    session.delete_class(class_id)
    return view_session(session)


@router.post(
    "/sessions/{session_id}/classes/{class_id}/examples",
    status_code=201,
    tags=["examples"],
    **_UPLOAD,
)
async def add_examples(
    session: Found, service: Server, class_id: str, request: Request, batch: requests.Batch = None
) -> AddedView:
    """Add photos to a class.

    A file of the type `application/vnd.alfa.strokes+json` is a drawing: a list of strokes, each a
    list of points `[x, y]` on any scale.
    """
    session.get_class(class_id)
    return await _add(session, service, request, class_id=class_id, batch=batch)


@router.post("/sessions/{session_id}/unlabeled", status_code=201, tags=["examples"], **_UPLOAD)
async def add_unlabeled(
    session: Found, service: Server, request: Request, batch: requests.Batch = None
) -> AddedView:
    """Add photos without a label."""
    return await _add(session, service, request, class_id=None, batch=batch)


async def _add(
    session: Session, service: Service, request: Request, *, class_id: str | None, batch: str | None
) -> AddedView:
    with service.uploading(session):
        async with receiving(request, service) as uploads:
            received = await service.receive(session, uploads)
            async with session.lock:
                if received.model is not session.model:
                    received = await service.receive(session, uploads)
                if class_id is not None:
                    # The user may have deleted the class in the meantime.
                    session.get_class(class_id)
                added = service.admit(session, received, labeled=class_id is not None)
                if added:
                    session.add_photos(class_id, added, batch=batch)
    return _added(session, [photo.id for photo in added], received.refused)


def _added(session: Session, ids: list[str], refused: list[RefusedView]) -> AddedView:
    return AddedView(session=view_session(session), added=ids, refused=refused)


@router.post("/sessions/{session_id}/import", tags=["examples"], **_UPLOAD)
async def import_examples(session: Found, service: Server, request: Request) -> AddedView:
    """Replace all classes by those of a zip with a folder of photos for each class."""
    with service.uploading(session):
        async with receiving(request, service) as uploads:
            try:
                classes = load_examples(uploads[0], service.limits)
            except AlfaError as error:
                raise Problem(422, "invalid-zip", str(error), field="files") from None
            async with session.lock:
                refused, made, ids = [], [], []
                for name, own in classes:
                    received = await service.receive(session, own)
                    photos = service.admit(session, received, labeled=True)
                    made.append((name, photos))
                    ids += [photo.id for photo in photos]
                    refused += received.refused
                session.replace_classes(made)
    return _added(session, ids, refused)


@router.patch("/sessions/{session_id}/examples/{example_id}", tags=["examples"])
async def move_example(session: Found, example_id: str, body: requests.NewClass) -> SessionView:
    """Move a photo to a class; this labels an unlabeled photo."""
    session.move(example_id, body.class_id)
    return view_session(session)


@router.delete("/sessions/{session_id}/examples/{example_id}", tags=["examples"])
async def delete_example(session: Found, example_id: str) -> SessionView:
    """Delete a labeled or unlabeled photo."""
    session.delete_photo(example_id)
    return view_session(session)


@router.get(
    "/sessions/{session_id}/examples/{example_id}/image",
    tags=["examples"],
    response_class=Response,
    responses={200: {"content": {"image/*": {}}}},
)
async def get_image(
    session: Found, example_id: str, size: Literal["thumbnail", "original"] = "thumbnail"
) -> Response:
    """Return a small image, or the original file."""
    photo = session.get_photo(example_id)
    if size == "original":
        return Response(photo.image, media_type=photo.media_type, headers=_IMMUTABLE)
    is_png = photo.thumbnail.startswith(b"\x89PNG")
    kind = "image/png" if is_png else "image/jpeg"
    return Response(photo.thumbnail, media_type=kind, headers=_IMMUTABLE)


def _path(request: Request, session_id: str, *rest: str) -> str:
    """Return the path of a session, below the path where the application is mounted."""
    root = request.scope.get("root_path", "").rstrip("/")
    return "/".join([f"{root}{requests.PREFIX}/sessions/{session_id}", *rest])
