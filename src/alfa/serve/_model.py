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

from alfa.data import GENERATED_DATASETS, Signature, decode, has_dark_ink
from alfa.data.sources import SOURCES
from alfa.errors import AlfaWarning, ConfigError, DataError
from alfa.estimator import FewShotClassifier, check_normalized
from alfa.runs import Run
from alfa.serve._drawing import draw
from alfa.serve._limits import MAX_CLASSES

# One thread computes for all users: it uses all cores, some kernels must not run in two threads at
# once, and each further thread would keep memory of its own.
_EXECUTOR = ThreadPoolExecutor(1, thread_name_prefix="alfa-serve")
# One image is decoded at a time, because the largest allowed takes a gigabyte.
_DECODE_LOCK = threading.Lock()
T = TypeVar("T")


def run_alone(compute: Callable[[], T]) -> T:
    """Run a computation while no other one runs."""
    return _EXECUTOR.submit(compute).result()


def can_export() -> bool:
    """Whether the extra `export` is installed."""
    from alfa.export import check_installed

    try:
        check_installed()
    except ConfigError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class UploadedImage:
    """An uploaded image as the model's input, uint8 ``[channel, height, width]``.

    An invalid image has no pixels, but a problem, which is a sentence.
    """

    name: str
    pixels: np.ndarray | None = None
    problem: str = ""


@dataclass(frozen=True)
class AdaptedModel:
    """A model that was adapted to images, uint8 ``[height, width, channel]`` each.

    The labels of the classifier are the positions of the classes.
    """

    classifier: FewShotClassifier
    images: Sequence[np.ndarray]
    seconds: float

    @property
    def num_right(self) -> int:
        """Examples that the model classifies correctly."""
        return int(self.classifier.support_hits_.sum())

    @property
    def losses(self) -> list[float]:
        """The support loss before every step and after the last."""
        return [float(loss) for loss in self.classifier.support_losses_]

    def predict_proba(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """The probability of each class, ``[image, class]``."""
        batch = [pixels.transpose(1, 2, 0) for pixels in images]
        return np.asarray(run_alone(lambda: self.classifier.predict_proba(batch)))

    def to_onnx(self, names: Sequence[str]) -> bytes:
        """An ONNX file with the names of the classes, checked on the examples."""
        from alfa.export import make_onnx

        named = copy.copy(self.classifier)
        named.classes_ = np.array(names)
        return run_alone(lambda: make_onnx(named, check_on=self.images)).content


@dataclass(frozen=True)
class Model:
    """A trained run, and the images that it takes.

    Attributes:
        run: its folder.
        dataset: the dataset that it was trained on.
        rule: the name of its rule.
        signature: of the tasks that it was trained on.
        max_classes: how many it can tell apart.
    """

    run: Path
    dataset: str
    rule: str
    signature: Signature
    max_classes: int

    @classmethod
    def open(cls, run: Path | str) -> Model:
        """Open a run folder.

        Raises:
            AlfaError: it is not a run, or was not trained on images of classes.
        """
        opened = Run.open(run)
        signature = opened.signature
        check_normalized(signature, run)
        tasks = opened.config()["tasks"]
        dataset = tasks.get("dataset") or tasks.get("sources") or tasks["name"]
        names = dataset if isinstance(dataset, str) else ", ".join(map(str, dataset))
        # The learner is loaded now to report a damaged checkpoint at the start.
        variable_way = opened.learner("best").init.variable_way
        limit = MAX_CLASSES if variable_way else min(MAX_CLASSES, signature.num_outputs)
        return cls(opened.path, names, opened.rule_name, signature, limit)

    @property
    def title(self) -> str:
        """The name of the dataset, for people to read."""
        if self.dataset in GENERATED_DATASETS:
            return "generated characters"
        return SOURCES.get(self.dataset).title if self.dataset in SOURCES else self.dataset

    @property
    def is_gray(self) -> bool:
        return self.signature.input_shape[0] == 1

    @property
    def can_draw(self) -> bool:
        """Whether a drawing can look like the images that the model was trained on."""
        return self.is_gray and has_dark_ink(self.dataset) is not None

    def receive(self, name: str, content: bytes) -> UploadedImage:
        """Decode an uploaded file."""
        try:
            return UploadedImage(name, self.read(content))
        except DataError as error:
            return UploadedImage(name, problem=f"“{name}” {error}.")

    def read(self, content: bytes) -> np.ndarray:
        """Decode an image to the model's input, uint8 ``[channel, height, width]``.

        Raises:
            DataError: says why it cannot be decoded, without the name of the file.
        """
        num_channels, height, width = self.signature.input_shape
        with _DECODE_LOCK:
            return decode(content, size=(height, width), num_channels=num_channels)[0]

    def drawn(self, strokes: Any) -> np.ndarray:
        """Turn a drawing into the model's input, uint8 ``[channel, height, width]``.

        Raises:
            DataError: it is not a drawing, or the model does not take any.
        """
        if not self.is_gray:
            raise DataError("this model was trained on coloured pictures, not on drawings.")
        if not self.can_draw:
            raise DataError(
                f"nobody knows whether the pictures of {self.dataset} are dark on white or light "
                "on black, so that a drawing may be the wrong way round; upload pictures instead."
            )
        _, height, width = self.signature.input_shape
        pixels = draw(strokes, size=max(height, width), dark=bool(has_dark_ink(self.dataset)))
        return decode(pixels, size=(height, width), num_channels=1)[0]

    def adapt(self, images: Sequence[np.ndarray], labels: Sequence[int]) -> AdaptedModel:
        """Run the inner loop on examples, as `read` and `drawn` return them.

        Raises:
            AlfaError: the run can no longer be read, or the examples make it diverge.
        """
        examples = [pixels.transpose(1, 2, 0) for pixels in images]

        def fit() -> AdaptedModel:
            begin = time.perf_counter()
            with warnings.catch_warnings():
                # The page shows how many examples are recognized.
                warnings.simplefilter("ignore", AlfaWarning)
                fitted = FewShotClassifier(self.run).fit(examples, list(labels))
            return AdaptedModel(fitted, examples, time.perf_counter() - begin)

        return run_alone(fit)

    def warm_up(self) -> None:
        """Adapt once, so that no user waits for the compilation of kernels."""
        shape = (2, *self.signature.input_shape)
        images = list(np.random.default_rng(0).integers(0, 256, shape, np.uint8))
        self.adapt(images, [0, 1]).predict_proba(images[:1])
