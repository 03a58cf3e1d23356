"""The state of one user: classes, examples, and the model that was adapted to them."""

from __future__ import annotations

import base64
import functools
import io
import itertools
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from alfa.errors import ConfigError, DataError
from alfa.serve._limits import MAX_IMAGES, MAX_NAME, MAX_PER_CLASS, MIN_CLASSES
from alfa.serve._model import AdaptedModel, Model, UploadedImage

NOT_LEARNED = "nothing has been learnt yet; press Learn first."
# A name becomes a folder in a saved set of examples, on any system.
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')


@dataclass(frozen=True, eq=False)
class Example:
    """An image by its number in the session; pixels are uint8 ``[channel, height, width]``."""

    number: int
    pixels: np.ndarray

    @functools.cached_property
    def data_url(self) -> str:
        return data_url(self.pixels)


@dataclass(eq=False)
class ExampleClass:
    """A class that the user made, by its number in the session."""

    number: int
    name: str
    examples: list[Example] = field(default_factory=list)


@dataclass(frozen=True)
class Prediction:
    """The prediction for one image, which is a data URL.

    The classes have a number, a name, and a probability; the likeliest is the first.
    """

    name: str
    image: str
    classes: Sequence[tuple[int, str, float]]


class Session:
    """The state of one user: classes, examples, and the adapted model.

    Methods that change something do so completely or raise an `AlfaError`, whose text is for the
    user. Callers hold `lock` while they call several methods or read what these have changed.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.lock = threading.RLock()
        self.classes: list[ExampleClass] = []
        self.adapted: AdaptedModel | None = None
        self.is_stale = False
        self._adapted_classes: list[int] = []
        self._numbers = itertools.count(1)
        for _ in range(MIN_CLASSES):
            self.add_class()
        self.selected = self.classes[0].number

    @property
    def num_examples(self) -> int:
        return sum(len(each.examples) for each in self.classes)

    def get_class(self, number: Any) -> ExampleClass:
        for each in self.classes:
            if each.number == number:
                return each
        raise DataError("this class is not there any more; pick another one.")

    def add_class(self) -> ExampleClass:
        """Add a class with an unused name, and select it."""
        if len(self.classes) >= self.model.max_classes:
            raise ConfigError(
                f"there are {len(self.classes)} classes already, which is as many as this model "
                "can tell apart; remove one first."
            )
        taken = {each.name.casefold() for each in self.classes}
        names = (f"Class {number}" for number in itertools.count(len(self.classes) + 1))
        name = next(name for name in names if name.casefold() not in taken)
        new = ExampleClass(next(self._numbers), name)
        self.classes.append(new)
        self.selected = new.number
        self.is_stale = True
        return new

    def select(self, number: Any) -> None:
        """Select the class that new images go to."""
        self.selected = self.get_class(number).number

    def rename(self, number: Any, name: Any) -> None:
        target = self.get_class(number)
        others = [each.name for each in self.classes if each is not target]
        target.name = validate_name(name, others)

    def remove_class(self, number: Any) -> None:
        target = self.get_class(number)
        if len(self.classes) <= MIN_CLASSES:
            raise ConfigError(
                f"at least {MIN_CLASSES} classes are needed, or there is nothing to tell apart; "
                "rename this one instead."
            )
        place = self.classes.index(target)
        self.classes.remove(target)
        if self.selected == number:
            self.selected = self.classes[max(0, place - 1)].number
        self.is_stale = True
        if target.number in self._adapted_classes:
            self.adapted = None

    def remove_example(self, number: Any) -> None:
        """Remove one image, if it is still there."""
        for each in self.classes:
            rest = [example for example in each.examples if example.number != number]
            if len(rest) < len(each.examples):
                each.examples = rest
                self.is_stale = True

    def add_example(self, number: Any, pixels: np.ndarray) -> None:
        """Add one image to a class."""
        target = self.get_class(number)
        if len(target.examples) >= MAX_PER_CLASS:
            raise ConfigError(
                f"“{target.name}” has {MAX_PER_CLASS} pictures already, which is as many as a "
                "class can have; a few are enough."
            )
        if self.num_examples >= MAX_IMAGES:
            raise ConfigError(
                f"there are {MAX_IMAGES} pictures already, which is as many as there can be; "
                "remove some first."
            )
        target.examples.append(Example(next(self._numbers), pixels))
        self.is_stale = True

    def add_uploads(self, number: Any, uploads: Iterable[UploadedImage]) -> tuple[int, list[str]]:
        """Add images to a class; return how many were added, and why others were not."""
        added = 0
        problems: list[str] = []
        for upload in uploads:
            if upload.pixels is None:
                problems.append(upload.problem)
                continue
            try:
                self.add_example(number, upload.pixels)
            except ConfigError as error:
                # The class is full, also for the others.
                problems.append(str(error))
                break
            added += 1
        return added, problems

    def replace(self, classes: Sequence[tuple[str, Sequence[np.ndarray]]]) -> None:
        """Replace all classes; there is at least one."""
        self.classes = [
            ExampleClass(
                next(self._numbers),
                name,
                [Example(next(self._numbers), pixels) for pixels in images],
            )
            for name, images in classes
        ]
        first = self.classes[0].number
        while len(self.classes) < MIN_CLASSES:
            self.add_class()
        self.selected = first
        self.is_stale, self.adapted = True, None

    def missing(self) -> str | None:
        """What is missing before the model can learn, as a sentence; None if nothing is."""
        empty = [f"“{each.name}”" for each in self.classes if not each.examples]
        if len(empty) == len(self.classes):
            return "Give each class a few pictures first."
        if len(empty) > 1:
            return f"{', '.join(empty[:-1])} and {empty[-1]} have no pictures yet."
        if empty:
            return f"{empty[0]} has no pictures yet."
        return None

    def learn(self) -> AdaptedModel:
        """Adapt the model to all examples."""
        if (missing := self.missing()) is not None:
            raise ConfigError(missing)
        images = [example.pixels for each in self.classes for example in each.examples]
        labels = [place for place, each in enumerate(self.classes) for _ in each.examples]
        self.adapted = self.model.adapt(images, labels)
        self._adapted_classes = [each.number for each in self.classes]
        self.is_stale = False
        return self.adapted

    def predict(self, images: Sequence[tuple[str, np.ndarray]]) -> list[Prediction]:
        """Classify new images, given by file name and pixels."""
        if self.adapted is None:
            raise ConfigError(NOT_LEARNED)
        names = self.adapted_names()
        rows = self.adapted.predict_proba([pixels for _, pixels in images])
        found = []
        for (name, pixels), row in zip(images, rows, strict=True):
            classes = [
                (self._adapted_classes[place], names[place], float(row[place]))
                for place in np.argsort(-row, kind="stable")
            ]
            found.append(Prediction(name, data_url(pixels), classes))
        return found

    def adapted_names(self) -> list[str]:
        """The names of the adapted model's classes, in the order of the probabilities."""
        names = {each.number: each.name for each in self.classes}
        return [names[number] for number in self._adapted_classes]


def validate_name(name: Any, others: Iterable[str]) -> str:
    """The name of a class without extra white space; raise if it is invalid or taken."""
    clean = " ".join(name.split()) if isinstance(name, str) else ""
    if not clean.strip(". "):
        raise ConfigError("a class needs a name; type a word or two.")
    if len(clean) > MAX_NAME:
        raise ConfigError(
            f"a name can have {MAX_NAME} characters, but this one has {len(clean)}; shorten it."
        )
    if _FORBIDDEN.search(clean) or clean != clean.strip(". ") or not clean.isprintable():
        raise ConfigError(
            'a name cannot have / \\ : * ? " < > | in it, or a dot at either end, because a folder '
            "is called by it when you save; choose another."
        )
    if clean.casefold() in {other.casefold() for other in others}:
        raise ConfigError(f"there is a class “{clean}” already; choose another name.")
    return clean


def as_png(pixels: np.ndarray) -> bytes:
    return _encode(pixels, "PNG")


def data_url(pixels: np.ndarray) -> str:
    """Pixels as a data URL; small, because the page may show hundreds."""
    kind = "PNG" if len(pixels) == 1 else "JPEG"
    return f"data:image/{kind.lower()};base64,{base64.b64encode(_encode(pixels, kind)).decode()}"


def _encode(pixels: np.ndarray, kind: str) -> bytes:
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    buffer = io.BytesIO()
    image.save(buffer, kind, quality=85)
    return buffer.getvalue()
