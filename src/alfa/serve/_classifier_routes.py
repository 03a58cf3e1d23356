"""Endpoints for learning, predictions, and downloads."""

from __future__ import annotations

import time
from typing import Literal
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from alfa.errors import AlfaError
from alfa.estimator import PreparedImages
from alfa.serve import _files as files
from alfa.serve import _requests as requests
from alfa.serve._problem import Problem, responses
from alfa.serve._requests import Found, Server
from alfa.serve._service import Service
from alfa.serve._session import Learned, Session
from alfa.serve._uploads import BODY, receiving
from alfa.serve._views import (
    PredictionsView,
    SessionView,
    view_predictions,
    view_session,
)

router = APIRouter(prefix=requests.PREFIX, responses=requests.PROBLEMS)
# The most unlabeled photos that `label-next` ranks.
_MOST_RANKED = 100


@router.post("/sessions/{session_id}/learn", tags=["classifier"], responses=responses(409))
async def learn(session: Found, service: Server) -> SessionView:
    """Learn from the examples, and estimate the accuracy by cross-validation."""
    async with session.lock:
        if (reason := session.learn_reason()) is not None:
            raise Problem(409, "cannot-learn", reason)
        support, model = session.state.support(), session.model
        images = session.images(photo_id for photo_id, _ in support)
        labels = [class_id for _, class_id in support]
        try:
            found = await service.compute(lambda: model.fit(images, labels))
        except AlfaError as error:
            raise Problem(409, "cannot-learn", str(error)) from None
        session.learn(Learned(found[0], support, found[1]))
    return view_session(session)


@router.post("/sessions/{session_id}/label-next", tags=["classifier"], responses=responses(409))
async def label_next(session: Found, service: Server) -> SessionView:
    """Rank the unlabeled photos by how much their labels would help."""
    async with session.lock:
        learned = get_learned(session)
        unlabeled = session.state.unlabeled
        if not unlabeled:
            raise Problem(409, "nothing-to-label", "the session has no unlabeled photos; add some.")
        images = session.images(photo.id for photo in unlabeled)
        count = min(len(unlabeled), _MOST_RANKED)
        order = await service.compute(
            lambda: learned.classifier.label_next(images, num_images=count)
        )
        session.rank([unlabeled[int(index)].id for index in order])
    return view_session(session)


@router.post(
    "/sessions/{session_id}/predict",
    tags=["classifier"],
    openapi_extra=BODY,
    responses=responses(409, 415, 429),
)
async def predict(session: Found, service: Server, request: Request) -> PredictionsView:
    """Classify photos, which the session does not keep."""
    get_learned(session)
    with service.uploading(session):
        async with receiving(request, service) as uploads:
            begin = time.perf_counter()
            received = await service.receive(session, uploads)
            learned = get_learned(session)
            if received.model is not session.model:
                raise Problem(409, "model-changed", "the model changed meanwhile; learn again.")
            if not received.photos:
                return PredictionsView(predictions=[], refused=received.refused)
            images = PreparedImages.concatenate([own.images for _, own in received.photos])
            found = await service.compute(lambda: learned.classifier.assess(images))
            seconds = (time.perf_counter() - begin) / len(images)
    names = [photo.name for photo, _ in received.photos]
    return view_predictions(session, learned, names, found, seconds, refused=received.refused)


@router.get(
    "/sessions/{session_id}/export",
    tags=["classifier"],
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {}}}, **responses(409)},
)
async def export(
    session: Found, service: Server, format: Literal["run", "onnx", "examples", "predictions"]
) -> StreamingResponse:
    """Download the run folder, an ONNX model, the examples, or predictions for unlabeled photos."""
    file = await _make_file(session, service, format)
    headers = {
        # RFC 6266 encoding supports all scripts and prevents header injection.
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
        "Cache-Control": "no-store",
    }
    return StreamingResponse(iter(file.parts), media_type=file.media_type, headers=headers)


async def _make_file(session: Session, service: Service, kind: str) -> files.Download:
    state, model = session.state, session.model
    if kind in ("examples", "run"):
        if not state.support():
            raise Problem(409, "nothing-to-export", "the session has no examples; add some.")
        save = files.save_examples if kind == "examples" else files.save_run
        return save(state, model)
    learned = get_learned(session)
    if kind == "predictions":
        if not state.unlabeled:
            raise Problem(409, "nothing-to-export", "the session has no unlabeled photos.")
        return await service.compute(lambda: files.save_predictions(session, learned))
    try:
        return await service.compute(lambda: files.save_onnx(learned, state))
    except AlfaError as error:
        raise Problem(409, "cannot-export", str(error)) from None


def get_learned(session: Session) -> Learned:
    """Return the classifier of a session; raise if there is none."""
    if session.learned is None:
        detail = "the session has no classifier yet; call `learn` first."
        raise Problem(409, "not-learned", detail)
    return session.learned
