"""Endpoints for the server, sessions, classes, and examples."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Query, Request, Response

import alfa
from alfa.errors import AlfaError
from alfa.serve import _views as views
from alfa.serve._files import load_examples
from alfa.serve._photo import media_type
from alfa.serve._problem import Problem, problems
from alfa.serve._service import Service
from alfa.serve._session import Session
from alfa.serve._uploads import BODY, receiving

PREFIX = "/api/v1"
PROBLEMS = problems(400, 401, 403, 404, 408, 409, 413, 415, 422, 429)
_SESSION, _CLASS = "/sessions/{session_id}", "/sessions/{session_id}/classes/{class_id}"
_EXAMPLE = "/sessions/{session_id}/examples/{example_id}"
router = APIRouter(prefix=PREFIX, responses=PROBLEMS)


def get_service(request: Request) -> Service:
    """Return the state of the server."""
    service: Service = request.app.state.service
    return service


Server = Annotated[Service, Depends(get_service)]


async def find_session(session_id: str, service: Server) -> Session:
    """Return the session of a path."""
    return service.sessions.get(session_id)


Found = Annotated[Session, Depends(find_session)]
Text = Annotated[str, Body(embed=True)]
Batch = Annotated[
    str | None,
    Query(min_length=1, max_length=64, description="Uploads of one batch are undone together."),
]


@router.get("/health", tags=["server"], response_model=views.HealthView)
async def get_health(service: Server) -> Any:
    """Return the state of the server."""
    loaded = [model.name for model in service.models if model.is_loaded]
    counts = {"models_loaded": loaded, "num_sessions": len(service.sessions)}
    return {"status": "ok", "version": alfa.__version__, **counts}


@router.get("/models", tags=["server"], response_model=views.ModelsView)
async def list_models(service: Server) -> Any:
    """List the models that a session can use, and the limits."""
    default = service.models[0].name
    return {"default": default, "models": service.models, "limits": service.limits}


@router.post("/sessions", status_code=201, tags=["sessions"], response_model=views.SessionView)
async def create_session(
    service: Server,
    request: Request,
    response: Response,
    model: Annotated[str | None, Body(embed=True)] = None,
) -> Any:
    """Create a session without classes; `model` is a name from `GET /models`."""
    session = service.sessions.create(await service.load_model(model))
    response.headers["Location"] = _path(request, session.id)
    return session


@router.get(_SESSION, tags=["sessions"], response_model=views.SessionView)
async def get_session(session: Found) -> Any:
    """Return a session."""
    return session


@router.patch(_SESSION, tags=["sessions"], response_model=views.SessionView)
async def change_model(session: Found, service: Server, model: Text) -> Any:
    """Use another model, which embeds all photos again."""
    await service.change_model(session, model)
    return session


@router.delete(_SESSION, status_code=204, tags=["sessions"])
async def delete_session(session: Found, service: Server) -> None:
    """Delete a session and its photos."""
    service.sessions.delete(session)


@router.post(f"{_SESSION}/undo", tags=["sessions"], response_model=views.SessionView)
async def undo(session: Found) -> Any:
    """Undo the last change of classes and examples."""
    session.undo()
    return session


@router.post(
    f"{_SESSION}/classes", status_code=201, tags=["classes"], response_model=views.SessionView
)
async def add_class(session: Found, request: Request, response: Response, name: Text) -> Any:
    """Add a class."""
    added = session.add_class(name)
    response.headers["Location"] = _path(request, session.id, "classes", added.id)
    return session


@router.patch(_CLASS, tags=["classes"], response_model=views.SessionView)
async def rename_class(session: Found, class_id: str, name: Text) -> Any:
    """Rename a class."""
    session.rename(class_id, name)
    return session


@router.delete(_CLASS, tags=["classes"], response_model=views.SessionView)
async def delete_class(session: Found, class_id: str) -> Any:
    """Delete a class and its examples."""
    session.delete_class(class_id)
    return session


@router.post(
    f"{_CLASS}/examples",
    status_code=201,
    tags=["examples"],
    response_model=views.AddedView,
    openapi_extra=BODY,
)
async def add_examples(
    session: Found, service: Server, class_id: str, request: Request, batch: Batch = None
) -> Any:
    """Add photos to a class.

    A file of the type `application/vnd.alfa.strokes+json` is a drawing: a list of strokes, each a
    list of points `[x, y]` on any scale.
    """
    session.get_class(class_id)
    return await _add(session, service, request, class_id=class_id, batch=batch)


@router.post(
    f"{_SESSION}/unlabeled",
    status_code=201,
    tags=["examples"],
    response_model=views.AddedView,
    openapi_extra=BODY,
)
async def add_unlabeled(
    session: Found, service: Server, request: Request, batch: Batch = None
) -> Any:
    """Add photos without a label."""
    return await _add(session, service, request, class_id=None, batch=batch)


async def _add(
    session: Session, service: Service, request: Request, *, class_id: str | None, batch: str | None
) -> dict[str, Any]:
    kind = "u" if class_id is None else "e"
    with service.uploading(session):
        async with receiving(request, service) as uploads:
            model = session.model
            photos, refused = await service.receive(session, uploads, kind=kind)
            async with session.lock:
                if session.model is not model:
                    photos, refused = await service.receive(session, uploads, kind=kind)
                if class_id is not None:
                    # The user may have deleted the class in the meantime.
                    session.get_class(class_id)
                added, others = service.admit(session, photos)
                if added:
                    session.add_photos(class_id, added, batch=batch)
    ids = [photo.id for photo in added]
    return {"session": session, "added": ids, "refused": [*refused, *others]}


@router.post(
    f"{_SESSION}/import", tags=["examples"], response_model=views.AddedView, openapi_extra=BODY
)
async def import_examples(session: Found, service: Server, request: Request) -> Any:
    """Replace all classes by the folders of photos in a zip."""
    refused, classes, ids = [], [], []
    with service.uploading(session):
        async with receiving(request, service) as uploads, session.lock:
            try:
                loaded = await asyncio.to_thread(load_examples, uploads[0], session)
            except AlfaError as error:
                raise Problem(422, "invalid-zip", str(error), field="files") from None
            for name, own in loaded:
                photos, others = await service.receive(session, own, kind="e")
                added, more = service.admit(session, photos)
                classes.append((name, added))
                ids += [photo.id for photo in added]
                refused += [*others, *more]
            session.replace_classes(classes)
    return {"session": session, "added": ids, "refused": refused}


@router.patch(_EXAMPLE, tags=["examples"], response_model=views.SessionView)
async def move_example(session: Found, example_id: str, class_id: Text) -> Any:
    """Move a photo to a class; this labels an unlabeled photo."""
    session.move(example_id, class_id)
    return session


@router.delete(_EXAMPLE, tags=["examples"], response_model=views.SessionView)
async def delete_example(session: Found, example_id: str) -> Any:
    """Delete a labeled or unlabeled photo."""
    session.delete_photo(example_id)
    return session


@router.get(
    f"{_EXAMPLE}/image",
    tags=["examples"],
    response_class=Response,
    responses={200: {"content": {"image/*": {}}}},
)
async def get_image(
    session: Found, example_id: str, size: Literal["thumbnail", "original"] = "thumbnail"
) -> Response:
    """Return a small image, or the original file."""
    photo = session.get_photo(example_id)
    content = photo.thumbnail if size == "thumbnail" else photo.file()
    return Response(content, media_type=media_type(content))


def _path(request: Request, session_id: str, *rest: str) -> str:
    """Return the path of a session, including the path at which the application is mounted."""
    root = request.scope.get("root_path", "").rstrip("/")
    return "/".join([f"{root}{PREFIX}/sessions/{session_id}", *rest])
