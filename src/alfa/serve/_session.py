"""Sessions: the classes, examples, and adapted model of every browser tab."""

import functools
import io
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from alfa.errors import ConfigError, DataError
from alfa.report.output import data_url
from alfa.serve import _limits as limits
from alfa.serve._model import AdaptedModel, Model, UploadedImage

NOT_LEARNED = "the model has not learned anything yet; press Learn first."
# A saved set of examples has a folder for each class, so names must be valid on every system.
_FORBIDDEN = set('/\\:*?"<>|')


@dataclass(frozen=True, eq=False)
class Example:
    """An image, uint8 ``[channel, height, width]``, and its number in the session."""

    number: int
    pixels: np.ndarray

    @functools.cached_property
    def data_url(self) -> str:
        return image_url(self.pixels)


@dataclass(eq=False)
class ExampleClass:
    """A class that the user created, and its number in the session."""

    number: int
    name: str
    examples: list[Example] = field(default_factory=list)


@dataclass(frozen=True)
class Prediction:
    """The prediction for an image, which is a data URL.

    Each class has a number, a name, and a probability; the most probable class comes first.
    """

    name: str
    image: str
    classes: Sequence[tuple[int, str, float]]


class Session:
    """The classes, examples, and adapted model of one user.

    A method either completes its change or raises an `AlfaError` with a message for the user.
    Callers hold `lock` during a sequence of calls and while they read the result.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.id = ""
        self.lock = threading.RLock()
        self.classes: list[ExampleClass] = []
        self.adapted: AdaptedModel | None = None
        self.is_stale = False
        self._adapted_classes: list[ExampleClass] = []
        self._numbers = itertools.count(1)
        for _ in range(limits.MIN_CLASSES):
            self.add_class()
        self.selected = self.classes[0].number

    @property
    def num_examples(self) -> int:
        return sum(len(each.examples) for each in self.classes)

    def get_class(self, number: Any) -> ExampleClass:
        for each in self.classes:
            if each.number == number:
                return each
        raise DataError("this class no longer exists; select another one.")

    def add_class(self) -> ExampleClass:
        """Add a class with an unused name, and select it."""
        if len(self.classes) >= self.model.max_classes:
            limit = self.model.max_classes
            raise ConfigError(f"the model supports at most {limit} classes; remove one first.")
        taken = {each.name.casefold() for each in self.classes}
        names = (f"Class {number}" for number in itertools.count(len(self.classes) + 1))
        name = next(name for name in names if name.casefold() not in taken)
        new = ExampleClass(next(self._numbers), name)
        self.classes.append(new)
        self.selected = new.number
        self.is_stale = True
        return new

    def select(self, number: Any) -> None:
        """Select the class that receives new images."""
        self.selected = self.get_class(number).number

    def rename(self, number: Any, name: Any) -> None:
        target = self.get_class(number)
        others = [each.name for each in self.classes if each is not target]
        target.name = validate_name(name, others)

    def remove_class(self, number: Any) -> None:
        target = self.get_class(number)
        if len(self.classes) <= limits.MIN_CLASSES:
            raise ConfigError(
                f"a model needs at least {limits.MIN_CLASSES} classes; rename this one."
            )
        place = self.classes.index(target)
        self.classes.remove(target)
        if self.selected == number:
            self.selected = self.classes[max(0, place - 1)].number
        self.is_stale = True
        if target in self._adapted_classes:
            self.adapted = None

    def remove_example(self, number: Any) -> None:
        """Remove an image; ignore an unknown number."""
        for each in self.classes:
            rest = [example for example in each.examples if example.number != number]
            if len(rest) < len(each.examples):
                each.examples = rest
                self.is_stale = True

    def add_example(self, number: Any, pixels: np.ndarray) -> None:
        """Add an image to a class."""
        target = self.get_class(number)
        if len(target.examples) >= limits.MAX_PER_CLASS:
            raise ConfigError(
                f"“{target.name}” already has {limits.MAX_PER_CLASS} pictures, the maximum per "
                "class."
            )
        if self.num_examples >= limits.MAX_IMAGES:
            raise ConfigError(
                f"there are already {limits.MAX_IMAGES} pictures, the maximum; remove some first."
            )
        target.examples.append(Example(next(self._numbers), pixels))
        self.is_stale = True

    def add_uploads(self, number: Any, uploads: Iterable[UploadedImage]) -> tuple[int, list[str]]:
        """Add images to a class; return the number of added images, and all problems."""
        added = 0
        problems: list[str] = []
        for upload in uploads:
            if upload.pixels is None:
                problems.append(upload.problem)
                continue
            try:
                self.add_example(number, upload.pixels)
            except ConfigError as error:
                # The class is full, so the remaining images do not fit either.
                problems.append(str(error))
                break
            added += 1
        return added, problems

    def replace(self, classes: Sequence[tuple[str, Sequence[np.ndarray]]]) -> None:
        """Replace all classes by one or more others."""
        self.classes = [
            ExampleClass(
                next(self._numbers),
                name,
                [Example(next(self._numbers), pixels) for pixels in images],
            )
            for name, images in classes
        ]
        first = self.classes[0].number
        while len(self.classes) < limits.MIN_CLASSES:
            self.add_class()
        self.selected = first
        self.is_stale, self.adapted = True, None

    def missing(self) -> str | None:
        """Describe the examples that the model still needs; None if it can learn."""
        empty = [f"“{each.name}”" for each in self.classes if not each.examples]
        if len(empty) == len(self.classes):
            return "Add a few pictures to each class first."
        if len(empty) > 1:
            return f"{', '.join(empty[:-1])} and {empty[-1]} have no pictures yet."
        return f"{empty[0]} has no pictures yet." if empty else None

    def learn(self) -> AdaptedModel:
        """Adapt the model to all examples."""
        if (missing := self.missing()) is not None:
            raise ConfigError(missing)
        images = [example.pixels for each in self.classes for example in each.examples]
        labels = [place for place, each in enumerate(self.classes) for _ in each.examples]
        self.adapted = self.model.adapt(images, labels)
        self._adapted_classes = list(self.classes)
        self.is_stale = False
        return self.adapted

    def predict(self, images: Sequence[tuple[str, np.ndarray]]) -> list[Prediction]:
        """Classify new images, given by file name and pixels."""
        if self.adapted is None:
            raise ConfigError(NOT_LEARNED)
        probabilities = self.adapted.predict_proba([pixels for _, pixels in images])
        predictions = []
        for (name, pixels), row in zip(images, probabilities, strict=True):
            pairs = zip(self._adapted_classes, row.tolist(), strict=True)
            ranked = sorted(pairs, key=lambda pair: -pair[1])
            classes = [(each.number, each.name, probability) for each, probability in ranked]
            predictions.append(Prediction(name, image_url(pixels), classes))
        return predictions

    def adapted_names(self) -> list[str]:
        """Return the current names of the adapted model's classes, in the order of its outputs."""
        return [each.name for each in self._adapted_classes]


class Sessions:
    """The session of every browser tab, by its identifier.

    At capacity, a new session replaces the one that has been idle longest, if that is long enough.
    """

    def __init__(
        self,
        make: Callable[[], Session],
        *,
        capacity: int = limits.MAX_SESSIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._capacity, self._clock = make, capacity, clock
        # Sessions and the times of their last use, least recently used first.
        self._sessions: dict[str, tuple[Session, float]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, session_id: str | None) -> Session:
        """Return the session of a tab; create it on first use."""
        if not session_id:
            raise ConfigError("this page works only in a browser; reload it.")
        with self._lock:
            session, _ = self._sessions.pop(session_id, (None, 0.0))
            if session is None:
                self._make_room()
                session = self._make()
                session.id = session_id
            self._sessions[session_id] = (session, self._clock())
            return session

    def get(self, session_id: str | None) -> Session | None:
        """Return the session of a tab, or None if it has none or closed it."""
        with self._lock:
            return self._sessions.get(session_id or "", (None, 0.0))[0]

    def close(self, session_id: str | None) -> None:
        with self._lock:
            self._sessions.pop(session_id or "", None)

    def _make_room(self) -> None:
        if len(self._sessions) < self._capacity:
            return
        oldest, (_, last_used) = next(iter(self._sessions.items()))
        if self._clock() - last_used < limits.IDLE_SECONDS:
            raise ConfigError(
                f"all {self._capacity} sessions of this page are in use; try again later."
            )
        del self._sessions[oldest]


def validate_name(name: Any, others: Iterable[str]) -> str:
    """Return a class name with normalized white space; raise if it is invalid or taken."""
    clean = " ".join(name.split()) if isinstance(name, str) else ""
    if not clean.strip(". "):
        raise ConfigError("a class needs a name; enter a word or two.")
    if len(clean) > limits.MAX_NAME:
        raise ConfigError(
            f"a class name must have at most {limits.MAX_NAME} characters, got {len(clean)}."
        )
    if _FORBIDDEN & set(clean) or clean != clean.strip(". ") or not clean.isprintable():
        raise ConfigError(
            'a class name must not contain / \\ : * ? " < > | or start or end with a dot, because '
            "saved examples use it as a folder name; choose another."
        )
    if clean.casefold() in {other.casefold() for other in others}:
        raise ConfigError(f"the class “{clean}” already exists; choose another name.")
    return clean


def image_url(pixels: np.ndarray) -> str:
    """Encode pixels as a data URL; photos become JPEGs, because the page may show hundreds."""
    kind = "png" if len(pixels) == 1 else "jpeg"
    return data_url(encode_image(pixels, kind), kind)


def encode_image(pixels: np.ndarray, kind: str) -> bytes:
    """Encode pixels ``[channel, height, width]`` as an image file."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    buffer = io.BytesIO()
    image.save(buffer, kind, quality=85)
    return buffer.getvalue()
