"""Endpoints for learning, predictions, and downloads."""

from __future__ import annotations

import time
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from alfa.errors import AlfaError
from alfa.estimator import PreparedImages
from alfa.serve import _files as files
from alfa.serve import _views as views
from alfa.serve._learned import Learned
from alfa.serve._problem import Problem
from alfa.serve._routes import PREFIX, PROBLEMS, Found, Server
from alfa.serve._session import Session
from alfa.serve._uploads import BODY, receiving

_SESSION = "/sessions/{session_id}"
# The most unlabeled photos that `label-next` ranks.
_MOST_RANKED = 100
router = APIRouter(prefix=PREFIX, responses=PROBLEMS)


@router.post(f"{_SESSION}/learn", tags=["classifier"], response_model=views.SessionView)
async def learn(session: Found, service: Server) -> Any:
    """Learn from the examples, and estimate the accuracy by cross-validation."""
    async with session.lock:
        if (reason := session.learn_reason) is not None:
            raise Problem(409, "cannot-learn", reason)
        model, support = session.model, session.state.support()
        images = PreparedImages.concatenate([photo.images for photo, _ in support])
        ids = [(photo.id, each.id) for photo, each in support]
        try:
            session.learn(await service.compute(lambda: Learned.of(model, images, ids)))
        except AlfaError as error:
            raise Problem(409, "cannot-learn", str(error)) from None
    return session


@router.post(f"{_SESSION}/label-next", tags=["classifier"], response_model=views.SessionView)
async def label_next(session: Found, service: Server) -> Any:
    """Rank the unlabeled photos by how much their labels would help."""
    async with session.lock:
        learned, unlabeled = get_learned(session), session.unlabeled
        if not unlabeled:
            raise Problem(409, "nothing-to-label", "the session has no unlabeled photos; add some.")
        images = PreparedImages.concatenate([photo.images for photo in unlabeled])
        count = min(len(unlabeled), _MOST_RANKED)
        order = await service.compute(
            lambda: learned.classifier.label_next(images, num_images=count)
        )
        session.rank([unlabeled[int(index)].id for index in order])
    return session


@router.post(
    f"{_SESSION}/predict",
    tags=["classifier"],
    response_model=views.PredictionsView,
    openapi_extra=BODY,
)
async def predict(session: Found, service: Server, request: Request) -> Any:
    """Classify photos, which the session does not keep."""
    get_learned(session)
    with service.uploading(session):
        async with receiving(request, service) as uploads:
            begin = time.perf_counter()
            photos, refused = await service.receive(session, uploads)
            learned = get_learned(session)
            if not photos:
                return {"predictions": [], "refused": refused}
            images = PreparedImages.concatenate([photo.images for photo in photos])
            found = await service.compute(lambda: learned.classifier.assess(images))
    shared = {
        "threshold": learned.threshold,
        "seconds": (time.perf_counter() - begin) / len(photos),
    }
    names = {each.id: each.name for each in session.classes}
    predictions = []
    for number, photo in enumerate(photos):
        pairs = zip(learned.class_ids, found.probabilities[number].tolist(), strict=True)
        ranked = sorted(pairs, key=lambda pair: -pair[1])
        is_none = bool(found.is_none[number])
        predictions.append(
            {
                "name": photo.name,
                "label": None if is_none else names.get(ranked[0][0]),
                "is_none": is_none,
                "familiarity": float(found.familiarity[number]),
                "probabilities": [
                    {"class_id": own, "name": names.get(own, own), "probability": probability}
                    for own, probability in ranked
                ],
                **shared,
            }
        )
    return {"predictions": predictions, "refused": refused}


@router.get(
    f"{_SESSION}/export",
    tags=["classifier"],
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
async def export(
    session: Found, service: Server, format: Literal["run", "onnx", "examples", "predictions"]
) -> StreamingResponse:
    """Download the run folder, an ONNX model, the examples, or predictions for unlabeled photos."""
    state, model = session.state, session.model
    if format in ("examples", "run"):
        if not state.support():
            raise Problem(409, "nothing-to-export", "the session has no examples; add some.")
        save = files.save_examples if format == "examples" else files.save_run
        return _download(save(state, model))
    learned = get_learned(session)
    if format == "predictions":
        if not state.unlabeled:
            raise Problem(409, "nothing-to-export", "the session has no unlabeled photos.")
        return _download(await service.compute(lambda: files.save_predictions(learned, state)))
    try:
        return _download(await service.compute(lambda: files.save_onnx(learned, state)))
    except AlfaError as error:
        raise Problem(409, "cannot-export", str(error)) from None


def _download(file: files.Download) -> StreamingResponse:
    # RFC 6266 encoding supports all scripts and prevents header injection.
    disposition = f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"
    headers = {"Content-Disposition": disposition}
    return StreamingResponse(iter(file.parts), media_type=file.media_type, headers=headers)


def get_learned(session: Session) -> Learned:
    """Return the classifier of a session; raise if there is none."""
    if session.learned is None:
        raise Problem(409, "not-learned", "the session has no classifier yet; call `learn` first.")
    return session.learned
