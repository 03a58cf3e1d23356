"""The run that a page serves."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from alfa.build import build_learner
from alfa.data import SOURCES, Signature, decode
from alfa.data._open import GENERATED
from alfa.errors import AlfaWarning, ConfigError, DataError
from alfa.estimator import FewShotClassifier
from alfa.estimator._images import check_normalised
from alfa.serve._drawing import draw
from alfa.serve._limits import MAX_CLASSES
from alfa.train import Run

# Datasets of drawings: whether their ink is dark on white, or light on black. The mean that they
# are normalised by does not tell, and of anybody's own pictures nothing does.
_INK_IS_DARK = {
    **dict.fromkeys(GENERATED, True),
    "omniglot": True,
    "md-omniglot": True,
    "md-quickdraw": False,
}
# One thread computes for everybody: it uses all cores, some kernels must not be called by two at a
# time, and every further thread would keep memory of its own for good.
_COMPUTER = ThreadPoolExecutor(1, thread_name_prefix="alfa-serve")
# One picture is decoded at a time: the largest that are allowed take a gigabyte.
_DECODING = threading.Lock()
T = TypeVar("T")


def alone(compute: Callable[[], T]) -> T:
    """What comes of something that is computed when nothing else is."""
    return _COMPUTER.submit(compute).result()


@dataclass(frozen=True, eq=False)
class Seen:
    """A picture that somebody sent, of which nothing else is kept.

    Attributes:
        name: of the file.
        pixels: as the model sees it, uint8 ``[channel, height, width]``; None if it cannot be used.
        problem: a sentence that says why it cannot.
    """

    name: str
    pixels: np.ndarray | None = None
    problem: str = ""


@dataclass(frozen=True)
class Learnt:
    """What came of learning from somebody's examples.

    Attributes:
        classifier: adapted to them; its labels are the numbers of the classes.
        images: the examples, uint8 ``[height, width, channel]`` each.
        num_right: examples that are recognised afterwards.
        num_examples: all of them.
        seconds: that it took.
    """

    classifier: Any
    images: Sequence[np.ndarray]
    num_right: int
    num_examples: int
    seconds: float

    @property
    def losses(self) -> list[float]:
        """Of the examples, before every step and after the last."""
        return [float(loss) for loss in self.classifier.support_losses_]

    @property
    def rates(self) -> dict[str, Any]:
        """The layers, and alpha and beta of every step and layer."""
        return dict(self.classifier.rates_)

    def probabilities(self, pictures: Sequence[np.ndarray]) -> np.ndarray:
        """Of each class, ``[picture, class]``; classes are in the order of their numbers."""
        images = list(map(_as_image, pictures))
        return np.asarray(alone(lambda: self.classifier.predict_proba(images)))


@dataclass(frozen=True)
class Model:
    """A trained run, and what pictures it takes.

    Attributes:
        run: its folder.
        dataset: what it was trained on, as an experiment calls it.
        rule: that gives the rates of its steps.
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
        """Open a run folder, and see that it can learn from pictures.

        Raises:
            AlfaError: it cannot, or is none.
        """
        folder = Path(run)
        experiment = Run(folder).experiment()
        signature = Run(folder).signature(experiment)
        if signature.loss != "cross_entropy" or len(signature.input_shape) != 3:
            raise ConfigError(
                f"{run} was not trained on images of classes, which a page needs; serve another "
                "run, such as the one that `alfa train --preset strokes-demo` makes in minutes."
            )
        check_normalised(signature, run)
        # A checkpoint that cannot be used is told of now, and not to the first who learns.
        Run(folder).load_for("best", experiment)
        options = experiment.tasks.options
        dataset = options.get("dataset") or options.get("sources") or experiment.tasks.name
        names = dataset if isinstance(dataset, str) else ", ".join(map(str, dataset))
        any_way = build_learner(experiment, signature).init.any_way
        limit = MAX_CLASSES if any_way else min(MAX_CLASSES, signature.num_outputs)
        return cls(folder, names, experiment.rule.name, signature, limit)

    @property
    def title(self) -> str:
        """What it was trained on, as people call it."""
        if self.dataset in GENERATED:
            return "generated characters"
        return SOURCES.get(self.dataset).title if self.dataset in SOURCES else self.dataset

    @property
    def is_grey(self) -> bool:
        return self.signature.input_shape[0] == 1

    @property
    def can_draw(self) -> bool:
        """Whether a drawing can be made to look like those that it was trained on."""
        return self.is_grey and self.dataset in _INK_IS_DARK

    def see(self, name: str, content: bytes) -> Seen:
        """Look at a file that somebody sent.

        Args:
            name: of the file.
            content: its bytes.
        """
        try:
            return Seen(name, self.read(content))
        except DataError as error:
            return Seen(name, problem=f"“{name}” {error}.")

    def read(self, content: bytes) -> np.ndarray:
        """A picture as the model sees it, uint8 ``[channel, height, width]``.

        Raises:
            DataError: it cannot be decoded; the text says why, without the name of the picture.
        """
        num_channels, height, width = self.signature.input_shape
        with _DECODING:
            return decode(content, size=(height, width), num_channels=num_channels)[0]

    def drawn(self, strokes: Any) -> np.ndarray:
        """A drawing as the model sees it, uint8 ``[channel, height, width]``.

        Raises:
            DataError: it is none, or nobody knows what one must look like.
        """
        if not self.is_grey:
            raise DataError("this model was trained on coloured pictures, not on drawings.")
        if not self.can_draw:
            raise DataError(
                f"nobody knows whether the pictures of {self.dataset} are dark on white or light "
                "on black, so that a drawing may be the wrong way round; upload pictures instead."
            )
        _, height, width = self.signature.input_shape
        dark = _INK_IS_DARK[self.dataset]
        pixels = draw(strokes, size=max(height, width), dark=dark)
        return decode(pixels, size=(height, width), num_channels=1)[0]

    def learn(self, pictures: Sequence[np.ndarray], labels: Sequence[int]) -> Learnt:
        """Run the inner loop on examples.

        Args:
            pictures: as `read` and `drawn` give them.
            labels: the number of each one's class.

        Raises:
            AlfaError: the run can no longer be read, or the examples make it diverge.
        """
        images = list(map(_as_image, pictures))

        def fit() -> tuple[FewShotClassifier, float]:
            begin = time.perf_counter()
            with warnings.catch_warnings():
                # Whoever teaches it sees how many of the pictures it recognises.
                warnings.simplefilter("ignore", AlfaWarning)
                fitted = FewShotClassifier(self.run).fit(images, list(labels))
            return fitted, time.perf_counter() - begin

        classifier, seconds = alone(fit)
        num_right = round(len(labels) * classifier.support_accuracy_)
        whole = [pixels.transpose(1, 2, 0) for pixels in pictures]
        return Learnt(classifier, whole, num_right, len(labels), seconds)

    def warm_up(self) -> None:
        """Learn something once, so that nobody waits for kernels that are compiled first."""
        rng = np.random.default_rng(0)
        shape = (2, *self.signature.input_shape)
        pictures = list(rng.integers(0, 256, shape, np.uint8))
        self.learn(pictures, [0, 1]).probabilities(pictures[:1])


def _as_image(pixels: np.ndarray) -> np.ndarray:
    """Channels last, as everybody else has them."""
    return pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
