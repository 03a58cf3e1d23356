"""The JSON of the API: the attributes of the server's objects that clients see."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from alfa.serve._learned import Accuracy, ClassAccuracy, Confused
from alfa.serve._limits import Limits
from alfa.serve._service import Refused
from alfa.serve._warnings import Warning


class _View(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class ExampleView(_View):
    """A labeled photo or drawing."""

    id: str
    name: str
    width: int
    height: int
    kind: Literal["photo", "drawing"]


class UnlabeledView(ExampleView):
    """An unlabeled photo; `usefulness` is 1 for the most helpful one and decreases by rank."""

    usefulness: float | None


class ClassView(_View):
    """A class and its examples."""

    id: str
    name: str
    examples: list[ExampleView]


class LearnedView(_View):
    """A classifier, and its assessment by cross-validation."""

    accuracy: Accuracy | None
    accuracy_reason: str | None
    calibration_error: float | None
    head: str
    head_reason: str
    threshold: float | None
    false_alarm_rate: float
    class_ids: list[str]
    per_class: list[ClassAccuracy]
    confused: list[Confused]
    seconds: float


class SessionView(_View):
    """The state of a session."""

    id: str
    model: Annotated[str, BeforeValidator(lambda model: model.name)]
    version: int
    can_undo: bool
    undo_label: str | None
    classes: list[ClassView]
    unlabeled: list[UnlabeledView]
    warnings: list[Warning]
    learn_reason: str | None
    learned: LearnedView | None
    stale: bool


class AddedView(_View):
    """The result of an upload."""

    session: SessionView
    added: list[str]
    refused: list[Refused]


class ProbabilityView(_View):
    """The calibrated probability of a class."""

    class_id: str
    name: str
    probability: float


class PredictionView(_View):
    """The prediction for a photo; `label` is null if it belongs to none of the classes."""

    name: str
    label: str | None
    is_none: bool
    familiarity: float
    threshold: float | None
    probabilities: list[ProbabilityView]
    seconds: float


class PredictionsView(_View):
    """The predictions for the photos of a request."""

    predictions: list[PredictionView]
    refused: list[Refused]


class ModelView(_View):
    """A model that a session can use."""

    name: str
    title: str
    description: str
    input: Literal["photo", "drawing"]
    adapts: bool
    available: bool
    reason: str | None


class ModelsView(_View):
    """All models, the model of a new session, and the limits."""

    default: str
    models: list[ModelView]
    limits: Limits


class HealthView(_View):
    """The state of the server."""

    status: Literal["ok"]
    version: str
    models_loaded: list[str]
    num_sessions: int
