"""The JSON of the API, and its computation from sessions."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import BaseModel

from alfa.assessment import Calibration, HeldOut
from alfa.data import copy_groups, similar_names
from alfa.estimator import Assessed
from alfa.serve._limits import MAX_NAME, Limits
from alfa.serve._model import Models
from alfa.serve._photo import Photo
from alfa.serve._session import Learned, Session, photos, quoted

# A class with less than this share of the photos of the largest class is underrepresented.
_MIN_SHARE = 1 / 3


class ExampleView(BaseModel):
    """A labeled photo or drawing."""

    id: str
    name: str
    width: int
    height: int
    kind: Literal["photo", "drawing"]


class UnlabeledView(ExampleView):
    """An unlabeled photo; `usefulness` is 1 for the most helpful one and decreases by rank."""

    usefulness: float | None


class ClassView(BaseModel):
    """A class and its examples."""

    id: str
    name: str
    examples: list[ExampleView]


class WarningView(BaseModel):
    """A possible problem of the examples."""

    code: Literal["duplicate", "imbalance", "similar-names", "small-photo", "one-photo"]
    text: str
    examples: list[str]


class AccuracyView(BaseModel):
    """The estimated accuracy on new photos, with its 95 % interval."""

    value: float
    low: float
    high: float
    num_examples: int
    text: str


class ClassAccuracyView(BaseModel):
    """The share of correct predictions for held-out examples of a class."""

    class_id: str
    accuracy: float | None
    num_examples: int


class ConfusedView(BaseModel):
    """An example that classifiers without it assign to another class."""

    example_id: str
    true: str
    predicted: str


class LearnedView(BaseModel):
    """A classifier, and its assessment by cross-validation."""

    accuracy: AccuracyView | None
    accuracy_reason: str | None
    calibration_error: float | None
    head: str
    head_reason: str
    threshold: float | None
    false_alarm_rate: float
    class_ids: list[str]
    per_class: list[ClassAccuracyView]
    confused: list[ConfusedView]
    seconds: float


class SessionView(BaseModel):
    """The state of a session."""

    id: str
    model: str
    version: int
    can_undo: bool
    undo_label: str | None
    classes: list[ClassView]
    unlabeled: list[UnlabeledView]
    warnings: list[WarningView]
    learn_reason: str | None
    learned: LearnedView | None
    stale: bool


class RefusedView(BaseModel):
    """A file that cannot be used."""

    name: str
    code: str
    detail: str


class AddedView(BaseModel):
    """The result of an upload."""

    session: SessionView
    added: list[str]
    refused: list[RefusedView]


class ProbabilityView(BaseModel):
    """The calibrated probability of a class."""

    class_id: str
    name: str
    probability: float


class PredictionView(BaseModel):
    """The prediction for a photo; `label` is null if it belongs to none of the classes."""

    name: str
    label: str | None
    is_none: bool
    familiarity: float
    threshold: float | None
    probabilities: list[ProbabilityView]
    seconds: float


class PredictionsView(BaseModel):
    """The predictions for the photos of a request."""

    predictions: list[PredictionView]
    refused: list[RefusedView]


class ModelView(BaseModel):
    """A model that a session can use."""

    name: str
    title: str
    description: str
    input: Literal["photo", "drawing"]
    adapts: bool
    available: bool
    reason: str | None


class LimitsView(BaseModel):
    """The limits of requests and sessions."""

    file_bytes: int
    zip_bytes: int
    files: int
    classes: int
    photos: int
    name_length: int
    uploads: int
    idle_seconds: float


class ModelsView(BaseModel):
    """All models, the model of a new session, and the limits."""

    default: str
    models: list[ModelView]
    limits: LimitsView


class HealthView(BaseModel):
    """The state of the server."""

    status: Literal["ok"]
    version: str
    models_loaded: list[str]
    num_sessions: int


def view_models(models: Models, limits: Limits) -> ModelsView:
    """Describe the models and the limits."""
    listed = [
        ModelView(
            name=info.name,
            title=info.title,
            description=info.description,
            input=info.input,
            adapts=info.adapts,
            available=info.reason is None,
            reason=info.reason,
        )
        for info in models.infos.values()
    ]
    own = LimitsView(
        file_bytes=limits.file_bytes,
        zip_bytes=limits.zip_bytes,
        files=limits.files,
        classes=limits.classes,
        photos=limits.photos,
        name_length=MAX_NAME,
        uploads=limits.uploads,
        idle_seconds=limits.idle_seconds,
    )
    return ModelsView(default=models.default, models=listed, limits=own)


def view_session(session: Session) -> SessionView:
    """Describe a session."""
    learned, state = session.learned, session.state
    # Sorting is stable, so photos without a rank keep their order.
    unlabeled = sorted(state.unlabeled, key=lambda photo: -session.usefulness.get(photo.id, 0.0))
    return SessionView(
        id=session.id,
        model=session.model.name,
        version=session.version,
        can_undo=session.undo_label is not None,
        undo_label=session.undo_label,
        classes=[
            ClassView(id=each.id, name=each.name, examples=[_example(p) for p in each.photos])
            for each in state.classes
        ],
        unlabeled=[
            UnlabeledView(**_example(p).model_dump(), usefulness=session.usefulness.get(p.id))
            for p in unlabeled
        ],
        warnings=find_warnings(session),
        learn_reason=session.learn_reason(),
        learned=None if learned is None else view_learned(learned, session.model.head),
        stale=session.is_stale,
    )


def _example(photo: Photo) -> ExampleView:
    return ExampleView(
        id=photo.id, name=photo.name, width=photo.width, height=photo.height, kind=photo.kind
    )


def find_warnings(session: Session) -> list[WarningView]:
    """Return possible problems of the examples: copies, names, sizes, and numbers of photos."""
    classes = [each for each in session.state.classes if each.photos]
    found = _find_copies(session)
    for first, second in similar_names([each.name for each in session.state.classes]):
        text = f"{quoted(first)} and {quoted(second)} are nearly the same name."
        found.append(WarningView(code="similar-names", text=text, examples=[]))
    most = max(classes, key=lambda each: len(each.photos), default=None)
    for each in classes:
        count, ids = len(each.photos), [photo.id for photo in each.photos]
        if count == 1:
            text = f"{quoted(each.name)} has only one photo, so its accuracy cannot be estimated."
            found.append(WarningView(code="one-photo", text=text, examples=ids))
        elif most is not None and count < _MIN_SHARE * len(most.photos):
            text = (
                f"{quoted(each.name)} has {photos(count)}, but {quoted(most.name)} has "
                f"{len(most.photos)}; similar numbers work better."
            )
            found.append(WarningView(code="imbalance", text=text, examples=[]))
    for photo in session.state.photos():
        if (note := session.prepared[photo.id].note) is not None:
            text = f"{quoted(photo.name)} {note}."
            found.append(WarningView(code="small-photo", text=text, examples=[photo.id]))
    return found


def _find_copies(session: Session) -> list[WarningView]:
    support = session.state.support()
    if not support:
        return []
    grids = np.concatenate([session.prepared[photo_id].images.grids for photo_id, _ in support])
    groups: dict[int, list[tuple[str, str]]] = {}
    for group, own in zip(copy_groups(grids).tolist(), support, strict=True):
        groups.setdefault(group, []).append(own)
    found = []
    for copies in groups.values():
        if len(copies) > 1:
            name = quoted(session.get_photo(copies[0][0]).name)
            names = list(dict.fromkeys(quoted(session.get_class(c).name) for _, c in copies))
            if len(names) > 1:
                where = f"is in {' and '.join(names)}; delete it from all but one of them."
            else:
                where = f"is {len(copies)} times in {names[0]}; copies add no information."
            ids = [photo_id for photo_id, _ in copies]
            found.append(WarningView(code="duplicate", text=f"{name} {where}", examples=ids))
    return found


def view_learned(learned: Learned, head: str) -> LearnedView:
    """Describe a classifier; `head` is the name of the last layer of its run."""
    clf = learned.classifier
    estimate, held_out, calibration = clf.accuracy_, clf.held_out_, clf.calibration_
    # A classifier of two or more classes is cross-validated.
    assert estimate is not None and held_out is not None
    assert calibration is not None
    accuracy = None
    if estimate.accuracy is not None:
        accuracy = AccuracyView(
            value=estimate.accuracy,
            low=estimate.low,
            high=estimate.high,
            num_examples=estimate.num_photos,
            text=str(estimate),
        )
    return LearnedView(
        accuracy=accuracy,
        accuracy_reason=None if accuracy is not None else str(estimate),
        calibration_error=calibration.error,
        head=head if clf.head_ == "trained" else clf.head_,
        head_reason=clf.head_reason_ or "the only head of this model",
        threshold=finite(clf.threshold_),
        false_alarm_rate=clf.false_alarm_rate,
        class_ids=learned.class_ids,
        per_class=_view_per_class(learned, held_out),
        confused=_find_confused(learned, calibration, held_out),
        seconds=learned.seconds,
    )


def _view_per_class(learned: Learned, held_out: HeldOut) -> list[ClassAccuracyView]:
    counts = np.bincount(held_out.folds.labels)
    labels = held_out.folds.labels[held_out.assessed]
    views = []
    for number, class_id in enumerate(learned.class_ids):
        hits = held_out.hits[labels == number]
        share = float(hits.mean()) if len(hits) else None
        views.append(
            ClassAccuracyView(class_id=class_id, accuracy=share, num_examples=int(counts[number]))
        )
    return views


def _find_confused(
    learned: Learned, calibration: Calibration, held_out: HeldOut
) -> list[ConfusedView]:
    if not len(held_out.assessed):
        return []
    rows = calibration.held_out_probabilities(held_out)
    means = np.stack([held_out.per_photo(column) for column in rows.T], axis=1)
    ids, found = learned.class_ids, []
    for index, best in zip(held_out.assessed.tolist(), means.argmax(1).tolist(), strict=True):
        example_id, true = learned.support[index]
        if ids[best] != true:
            found.append(ConfusedView(example_id=example_id, true=true, predicted=ids[best]))
    return found


def finite(value: float) -> float | None:
    """Return a number, or None for infinity, which JSON cannot represent."""
    return value if math.isfinite(value) else None


def view_predictions(
    session: Session,
    learned: Learned,
    names: list[str],
    found: Assessed,
    seconds: float,
    *,
    refused: list[RefusedView],
) -> PredictionsView:
    """Describe the predictions for photos with these names."""
    classes = {each.id: each.name for each in session.state.classes}
    views = []
    for number, name in enumerate(names):
        pairs = zip(learned.class_ids, found.probabilities[number].tolist(), strict=True)
        ranked = sorted(pairs, key=lambda pair: -pair[1])
        is_none = bool(found.is_none[number])
        views.append(
            PredictionView(
                name=name,
                label=None if is_none else classes.get(str(found.labels[number])),
                is_none=is_none,
                familiarity=float(found.familiarity[number]),
                threshold=finite(learned.classifier.threshold_),
                probabilities=[
                    ProbabilityView(class_id=own, name=classes.get(own, own), probability=share)
                    for own, share in ranked
                ],
                seconds=seconds,
            )
        )
    return PredictionsView(predictions=views, refused=refused)
