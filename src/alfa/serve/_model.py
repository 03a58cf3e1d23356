"""The models that sessions share; each is loaded once per process."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from alfa.backbones import backbone_cards
from alfa.data import ImageFormat, has_dark_ink
from alfa.errors import AlfaWarning, ConfigError, DivergedError
from alfa.estimator import FewShotClassifier, PreparedImages, check_images
from alfa.models import check_inductive_head
from alfa.runs import Run, model_card, model_names

# Preferred models for `alfa serve` without an argument.
_DEFAULTS = ("photos", "strokes")


class Model:
    """A run folder or a pretrained model, whose files are read at most once.

    Its description is available before it is loaded.

    Attributes:
        name: name in the API.
        title: title for display.
        description: intended use.
        dark_ink: whether drawings are dark on white; None if the model takes photos.
        adapts: whether learning runs inner steps.
        reason: why the model is not available; None if it is.
        is_loaded: whether `load` was called.
    """

    def __init__(self, path: Path | str, *, name: str | None = None) -> None:
        self.run = run = Run.open(path)
        self.name, self._path = name or run.path.absolute().name, path
        tasks = run.config()["tasks"]
        source = tasks.get("dataset") or tasks.get("sources") or tasks["name"]
        dataset = source if isinstance(source, str) else ", ".join(map(str, source))
        self.title, self.description = f"run folder {self.name}", f"trained on {dataset}"
        if run.is_pretrained:
            card = model_card(run.path.name)
            self.title, self.description = card.title, card.use
        backbone, shape = run.signature.backbone, run.signature.input_shape
        is_gray = not backbone and len(shape) == 3 and shape[0] == 1
        self.dark_ink = has_dark_ink(dataset) if is_gray else None
        self.adapts = run.num_test_steps > 0
        cards = {card.name: card for card in backbone_cards()}
        is_missing = backbone in cards and not cards[backbone].is_installed
        self.reason = f"run `{cards[backbone].install}`" if is_missing else None
        self.is_loaded = False

    @property
    def input(self) -> Literal["photo", "drawing"]:
        """The kind of examples that users create."""
        return "photo" if self.dark_ink is None else "drawing"

    @property
    def available(self) -> bool:
        return self.reason is None

    @cached_property
    def image_format(self) -> ImageFormat:
        """The images that the model takes."""
        return check_images(self.run.signature, self._path)

    @property
    def head(self) -> str:
        """The name of the run's own last layer."""
        return str((self.run.config().get("head") or {}).get("name", "trained"))

    def load(self) -> None:
        """Read all files, and compile kernels before the first user needs them."""
        if self.is_loaded:
            return
        check_inductive_head(self.run.keep_models().learner().model)
        shape = (4, *self.image_format.shape)
        levels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        images = PreparedImages.of(self.image_format, levels)
        # Inner steps may diverge on noise.
        with contextlib.suppress(DivergedError):
            self.fit(images, [0, 0, 1, 1]).assess(images)
        self.is_loaded = True

    def fit(self, images: PreparedImages, labels: Sequence[int]) -> FewShotClassifier:
        """Learn from images."""
        with warnings.catch_warnings():
            # The API reports the estimated accuracy and its own warnings instead.
            warnings.simplefilter("ignore", AlfaWarning)
            return FewShotClassifier(self.run, head="auto").fit(images, list(labels))


def open_models(path: Path | str | None) -> list[Model]:
    """Return the server's own model, which must be available, and then the pretrained ones."""
    pretrained = {name: Model(model_card(name).path) for name in model_names()}
    if path is None:
        own = next(pretrained[name] for name in _DEFAULTS if pretrained[name].available)
    else:
        own = Model(path)
        if not own.run.is_pretrained and own.name in pretrained:
            own = Model(path, name=f"{own.name} (run)")
    if own.reason is not None:
        raise ConfigError(f"{own.name} needs its backbone; {own.reason}.")
    if not own.run.signature.backbone:
        # Loading a backbone can wait until the server has started.
        check_images(own.run.signature, path)
    check_inductive_head(own.run.keep_models().learner().model)
    return [own, *(model for name, model in pretrained.items() if name != own.name)]
