"""The model that a page serves."""

from __future__ import annotations

import copy
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from alfa.data import GENERATED_DATASETS, ImageFormat, has_dark_ink
from alfa.data.sources import SOURCES
from alfa.errors import AlfaWarning, ConfigError, DataError
from alfa.estimator import FewShotClassifier, check_images
from alfa.export import check_installed, make_onnx
from alfa.models import check_inductive_head
from alfa.runs import Run
from alfa.serve._drawing import draw
from alfa.serve._limits import MAX_CLASSES

# One thread computes for all users. It uses all cores, some kernels are not thread-safe, and each
# further thread would allocate its own memory.
_EXECUTOR = ThreadPoolExecutor(1, thread_name_prefix="alfa-serve")
# Decoding the largest allowed image takes a gigabyte.
_DECODE_LOCK = threading.Lock()
T = TypeVar("T")


def run_alone(compute: Callable[[], T]) -> T:
    """Run a computation while no other one runs."""
    return _EXECUTOR.submit(compute).result()


def can_export() -> bool:
    """Whether the extra `export` is installed."""
    try:
        check_installed()
    except ConfigError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class UploadedImage:
    """An uploaded image, uint8 ``[channel, height, width]``, or the problem with it."""

    name: str
    pixels: np.ndarray | None = None
    problem: str = ""


@dataclass(frozen=True)
class AdaptedModel:
    """A model adapted to images, uint8 ``[height, width, channel]``; its labels are indices."""

    classifier: FewShotClassifier
    images: Sequence[np.ndarray]
    seconds: float

    def predict_proba(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """Return the class probabilities, ``[image, class]``."""
        batch = [pixels.transpose(1, 2, 0) for pixels in images]
        return np.asarray(run_alone(lambda: self.classifier.predict_proba(batch)))

    def to_onnx(self, names: Sequence[str]) -> bytes:
        """Export the model with class names as ONNX, and compare both models on the examples."""
        named = copy.copy(self.classifier)
        named.classes_ = np.array(names)
        return run_alone(lambda: make_onnx(named, check_on=self.images)).content


@dataclass(frozen=True)
class Model:
    """A trained run, its dataset, and the number of classes that it supports."""

    run: Path
    dataset: str
    rule: str
    image_format: ImageFormat
    max_classes: int

    @classmethod
    def open(cls, run: Path | str) -> Model:
        """Open a run folder; raise if the run was not trained on image classification."""
        opened = Run.open(run)
        image_format = check_images(opened.signature, run)
        tasks = opened.config()["tasks"]
        dataset = tasks.get("dataset") or tasks.get("sources") or tasks["name"]
        names = dataset if isinstance(dataset, str) else ", ".join(map(str, dataset))
        # Loading the learner now reports a damaged checkpoint early.
        learner = opened.learner("best")
        check_inductive_head(learner.model)
        most = MAX_CLASSES if learner.init.variable_way else opened.signature.num_outputs
        limit = min(MAX_CLASSES, most)
        return cls(opened.path, names, opened.rule_name, image_format, limit)

    @property
    def title(self) -> str:
        """The dataset's name for display."""
        if self.dataset in GENERATED_DATASETS:
            return "generated characters"
        return SOURCES.get(self.dataset).title if self.dataset in SOURCES else self.dataset

    @property
    def is_gray(self) -> bool:
        return self.image_format.shape[0] == 1

    @property
    def can_draw(self) -> bool:
        """Whether drawings can resemble the training images."""
        return self.is_gray and has_dark_ink(self.dataset) is not None

    def receive(self, name: str, content: bytes) -> UploadedImage:
        """Decode an uploaded file."""
        try:
            return UploadedImage(name, self.read(content))
        except DataError as error:
            return UploadedImage(name, problem=f"“{name}” {error}.")

    def read(self, content: bytes) -> np.ndarray:
        """Decode an image to the model's input, uint8 ``[channel, height, width]``.

        Error messages do not contain the name of the file.
        """
        with _DECODE_LOCK:
            return self.image_format.decode(content)[0]

    def drawn(self, strokes: Any) -> np.ndarray:
        """Render a drawing as the model's input, uint8 ``[channel, height, width]``."""
        if not self.can_draw:
            raise DataError(
                f"the model of {self.dataset} does not support drawings, because its pictures are "
                "in color or may have dark or light ink; upload pictures instead."
            )
        _, height, width = self.image_format.shape
        pixels = draw(strokes, size=max(height, width), dark=bool(has_dark_ink(self.dataset)))
        return self.image_format.decode(pixels)[0]

    def adapt(self, images: Sequence[np.ndarray], labels: Sequence[int]) -> AdaptedModel:
        """Run the inner loop on images from `read` and `drawn`."""
        examples = [pixels.transpose(1, 2, 0) for pixels in images]

        def fit() -> AdaptedModel:
            begin = time.perf_counter()
            with warnings.catch_warnings():
                # The page shows the estimated accuracy instead.
                warnings.simplefilter("ignore", AlfaWarning)
                fitted = FewShotClassifier(self.run).fit(examples, list(labels))
            return AdaptedModel(fitted, examples, time.perf_counter() - begin)

        return run_alone(fit)

    def warm_up(self) -> None:
        """Compile the kernels before the first user needs them."""
        shape = (2, *self.image_format.shape)
        images = list(np.random.default_rng(0).integers(0, 256, shape, np.uint8))
        self.adapt(images, [0, 1]).predict_proba(images[:1])
