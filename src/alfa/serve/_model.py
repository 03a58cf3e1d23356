"""The models that sessions share; each is loaded once per process."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from alfa.backbones import EmbeddingCache, backbone_cards, is_backbone
from alfa.data import has_dark_ink
from alfa.errors import AlfaError, AlfaWarning
from alfa.estimator import FewShotClassifier, PreparedImages, check_images
from alfa.models import check_inductive_head
from alfa.runs import Run, model_card, model_names

# Preferred models for `alfa serve` without an argument.
_DEFAULTS = ("photos", "strokes")


@dataclass(frozen=True)
class ModelInfo:
    """The description of a model, which is available before the model is loaded.

    Attributes:
        name: name in the API.
        run: run folder or name of a pretrained model.
        title: title for display.
        description: intended use.
        input: the kind of examples that users create.
        adapts: whether learning runs inner steps.
        reason: why the model is not available; None if it is.
    """

    name: str
    run: Path
    title: str
    description: str
    input: Literal["photo", "drawing"]
    adapts: bool
    reason: str | None

    @classmethod
    def of(cls, run: Path | str, *, name: str | None = None) -> ModelInfo:
        """Describe a run folder or a pretrained model."""
        opened = Run.open(run)
        if str(run) in model_names() and opened.is_pretrained:
            card = model_card(str(run))
            title, description = card.title, f"{card.use}; {card.limits}"
        else:
            title, description = f"run folder {opened.path.name}", f"trained on {_dataset(opened)}"
        return cls(
            name or opened.path.name,
            Path(run),
            title,
            description,
            "photo" if _dark_ink(opened) is None else "drawing",
            opened.num_test_steps > 0,
            _missing_backbone(opened.signature.backbone),
        )


def _dataset(run: Run) -> str:
    tasks = run.config()["tasks"]
    dataset = tasks.get("dataset") or tasks.get("sources") or tasks["name"]
    return dataset if isinstance(dataset, str) else ", ".join(map(str, dataset))


def _dark_ink(run: Run) -> bool | None:
    """Return True for drawings that are dark on white, False for light ones, None for photos."""
    is_gray = not run.signature.backbone and run.signature.input_shape[0] == 1
    return has_dark_ink(_dataset(run)) if is_gray else None


def _missing_backbone(name: str) -> str | None:
    if not name:
        return None
    cards = {card.name: card for card in backbone_cards()}
    if name in cards and not cards[name].is_installed:
        return f"its backbone is not installed; run `{cards[name].install}`."
    return None if is_backbone(name) else f"its backbone {name!r} is not registered."


class ServedModel:
    """A run whose files are read once.

    Attributes:
        name: name in the API.
        run: the run, with its checkpoint in memory.
        image_format: the images that the model takes.
        dark_ink: whether drawings are dark on white; None if the model takes photos.
        head: the name of the run's own last layer.
    """

    def __init__(self, info: ModelInfo) -> None:
        self.name, self.run = info.name, Run.open(info.run).keep_models()
        self.image_format = check_images(self.run.signature, info.run)
        # Building the learner now reports a damaged checkpoint early.
        check_inductive_head(self.run.learner().model)
        self.dark_ink = _dark_ink(self.run)
        self.head = str((self.run.config().get("head") or {}).get("name", "trained"))

    def prepare(self, levels: np.ndarray, cache: EmbeddingCache) -> PreparedImages:
        """Convert decoded levels, ``[channel, height, width]``, to the inputs of the model."""
        return PreparedImages.of(self.image_format, levels[None], cache=cache)

    def fit(self, images: PreparedImages, labels: Sequence[str]) -> tuple[FewShotClassifier, float]:
        """Learn from images; return the classifier and the seconds that it took."""
        begin = time.perf_counter()
        with warnings.catch_warnings():
            # The API reports the estimated accuracy and its own warnings instead.
            warnings.simplefilter("ignore", AlfaWarning)
            classifier = FewShotClassifier(self.run, head="auto").fit(images, list(labels))
        return classifier, time.perf_counter() - begin

    def warm_up(self) -> None:
        """Compile kernels and prepare the backbone before the first user needs them."""
        shape = (4, *self.image_format.shape)
        levels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        images = PreparedImages.of(self.image_format, levels)
        self.fit(images, ["a", "a", "b", "b"])[0].assess(images)


class Models:
    """The models of a server: its own run first, then the pretrained ones.

    Attributes:
        infos: descriptions by name.
        default: name of the model of a new session.
    """

    def __init__(self, run: Path | str | None) -> None:
        pretrained = {name: ModelInfo.of(name) for name in model_names()}
        if run is None:
            usable = [name for name in _DEFAULTS if pretrained[name].reason is None]
            own = pretrained[usable[0]]
        elif str(run) in pretrained and not Path(run).exists():
            own = pretrained[str(run)]
        else:
            name = Path(run).resolve().name
            own = ModelInfo.of(run, name=f"{name} (run)" if name in pretrained else name)
        self.infos: Mapping[str, ModelInfo] = {own.name: own} | pretrained
        self.default = own.name
        self._loaded: dict[str, ServedModel] = {}
        self._lock = threading.Lock()
        # An error of the server's own run should end the command; loading it can wait.
        self._check(own)

    @staticmethod
    def _check(info: ModelInfo) -> None:
        if info.reason is not None:
            raise AlfaError(f"{info.run} cannot be served, because {info.reason}")
        run = Run.open(info.run)
        if not run.signature.backbone:
            check_images(run.signature, info.run)

    @property
    def loaded(self) -> list[str]:
        return list(self._loaded)

    def load(self, name: str) -> ServedModel:
        """Return a model; load it on first use."""
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = ServedModel(self.infos[name])
            return self._loaded[name]
