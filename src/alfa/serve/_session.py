"""What one person has on the page: classes, pictures, and what was learnt from them."""

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
from alfa.serve._limits import MAX_NAME, MAX_PER_CLASS, MAX_PICTURES, MAX_TRIED, MIN_CLASSES
from alfa.serve._model import Learnt, Model, Seen

# A name is that of a folder in a saved set of examples, on any system.
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')


@dataclass(frozen=True, eq=False)
class Picture:
    """One example.

    Only what the model sees of it is kept: its size and channels, and nothing of the file.

    Attributes:
        number: tells it from the person's other pictures.
        pixels: uint8 ``[channel, height, width]``.
    """

    number: int
    pixels: np.ndarray

    @functools.cached_property
    def address(self) -> str:
        """For an ``<img>``; the picture itself, so that nothing has to be fetched."""
        return address(self.pixels)


@dataclass(eq=False)
class Class:
    """A class that somebody made.

    Attributes:
        number: tells it from the person's other classes, whatever they are called.
        name: as they call it.
        pictures: its examples.
    """

    number: int
    name: str
    pictures: list[Picture] = field(default_factory=list)


@dataclass(frozen=True)
class Prediction:
    """What the model says of one picture.

    Attributes:
        name: of the file, if it was one.
        picture: as the model sees it, for an ``<img>``.
        classes: the number, name and probability of each class, the likeliest first.
    """

    name: str
    picture: str
    classes: Sequence[tuple[int, str, float]]


class Session:
    """Everything of one person; nothing of it is shared, or outlives it.

    Methods that change something do so completely or raise an `AlfaError`, whose sentence is for
    the person. Whoever calls several of them, or reads what they changed, holds `lock`.

    Args:
        model: that learns.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.lock = threading.RLock()
        self.classes: list[Class] = []
        self.learnt: Learnt | None = None
        self.is_stale = False
        self.picked = 0
        self._learnt_classes: list[int] = []
        self._numbers = itertools.count(1)
        for _ in range(MIN_CLASSES):
            self.add_class()
        self.picked = self.classes[0].number

    @property
    def num_pictures(self) -> int:
        return sum(len(each.pictures) for each in self.classes)

    def class_of(self, number: Any) -> Class:
        """The class of this number.

        Raises:
            DataError: it is not there any more.
        """
        for each in self.classes:
            if each.number == number:
                return each
        raise DataError("this class is not there any more; pick another one.")

    def add_class(self) -> Class:
        """Make one more, with a name of its own, and pick it."""
        if len(self.classes) >= self.model.max_classes:
            raise ConfigError(
                f"there are {len(self.classes)} classes already, which is as many as this model "
                "can tell apart; remove one first."
            )
        taken = {each.name.casefold() for each in self.classes}
        names = (f"Class {number}" for number in itertools.count(len(self.classes) + 1))
        name = next(name for name in names if name.casefold() not in taken)
        new = Class(next(self._numbers), name)
        self.classes.append(new)
        self.picked = new.number
        self.is_stale = True
        return new

    def pick(self, number: Any) -> None:
        """Choose the class that new pictures go to."""
        self.picked = self.class_of(number).number

    def rename(self, number: Any, name: Any) -> None:
        """Give a class another name; what was learnt stays."""
        target = self.class_of(number)
        others = [each.name for each in self.classes if each is not target]
        target.name = checked_name(name, others)

    def remove_class(self, number: Any) -> None:
        """Remove a class and its pictures."""
        target = self.class_of(number)
        if len(self.classes) <= MIN_CLASSES:
            raise ConfigError(
                f"at least {MIN_CLASSES} classes are needed, or there is nothing to tell apart; "
                "rename this one instead."
            )
        place = self.classes.index(target)
        self.classes.remove(target)
        if self.picked == number:
            self.picked = self.classes[max(0, place - 1)].number
        self._forget(only_if_of=target)

    def remove_picture(self, number: Any) -> None:
        """Remove one picture; nothing happens if it is gone already."""
        for each in self.classes:
            kept = [picture for picture in each.pictures if picture.number != number]
            if len(kept) < len(each.pictures):
                each.pictures = kept
                self.is_stale = True

    def add_pixels(self, number: Any, pixels: np.ndarray) -> None:
        """Give a class one more picture, as the model sees it."""
        target = self.class_of(number)
        if len(target.pictures) >= MAX_PER_CLASS:
            raise ConfigError(
                f"“{target.name}” has {MAX_PER_CLASS} pictures already, which is as many as a "
                "class can have; a few are enough."
            )
        if self.num_pictures >= MAX_PICTURES:
            raise ConfigError(
                f"there are {MAX_PICTURES} pictures already, which is as many as there can be; "
                "remove some first."
            )
        target.pictures.append(Picture(next(self._numbers), pixels))
        self.is_stale = True

    def add_files(self, number: Any, files: Iterable[Seen]) -> tuple[int, list[str]]:
        """Give a class pictures from files, each by itself.

        Args:
            number: of the class.
            files: as the model sees them.

        Returns:
            How many were added, and a sentence for each that was refused.
        """
        self.class_of(number)
        added, refused = 0, []
        for seen in files:
            if seen.pixels is None:
                refused.append(seen.problem)
                continue
            try:
                self.add_pixels(number, seen.pixels)
            except ConfigError as error:
                # The others would be refused for the same reason.
                refused.append(str(error))
                break
            added += 1
        return added, refused

    def replace(self, classes: Sequence[tuple[str, Sequence[np.ndarray]]]) -> None:
        """Begin anew with these classes and pictures, of which there is at least one."""
        made = []
        for name, pictures in classes:
            kept = [Picture(next(self._numbers), pixels) for pixels in pictures]
            made.append(Class(next(self._numbers), name, kept))
        self.classes = made
        while len(self.classes) < MIN_CLASSES:
            self.add_class()
        self.picked = made[0].number
        self._forget()

    def missing(self) -> str | None:
        """What there must be before anything can be learnt, as a sentence; None if nothing."""
        empty = [f"“{each.name}”" for each in self.classes if not each.pictures]
        if len(empty) == len(self.classes):
            return "Give each class a few pictures first."
        if len(empty) > 1:
            return f"{', '.join(empty[:-1])} and {empty[-1]} have no pictures yet."
        if empty:
            return f"{empty[0]} has no pictures yet."
        return None

    def learn(self) -> Learnt:
        """Learn from all pictures."""
        if (missing := self.missing()) is not None:
            raise ConfigError(missing)
        pictures, labels = [], []
        for number, each in enumerate(self.classes):
            pictures += [picture.pixels for picture in each.pictures]
            labels += [number] * len(each.pictures)
        self.learnt = self.model.learn(pictures, labels)
        self._learnt_classes = [each.number for each in self.classes]
        self.is_stale = False
        return self.learnt

    def predict(self, pictures: Sequence[tuple[str, np.ndarray]]) -> list[Prediction]:
        """What the model says of pictures that it may never have seen.

        Args:
            pictures: their names, and pixels as the model sees them.
        """
        if self.learnt is None:
            raise ConfigError("nothing has been learnt yet; press Learn first.")
        if len(pictures) > MAX_TRIED:
            raise ConfigError(
                f"there are {len(pictures)} pictures, more than the {MAX_TRIED} that can be tried "
                "at once; take fewer."
            )
        names = self.learnt_names()
        rows = self.learnt.probabilities([pixels for _, pixels in pictures])
        found = []
        for (name, pixels), row in zip(pictures, rows, strict=True):
            classes = [
                (self._learnt_classes[place], names[place], float(row[place]))
                for place in np.argsort(-row, kind="stable")
            ]
            found.append(Prediction(name, address(pixels), classes))
        return found

    def learnt_names(self) -> list[str]:
        """What the classes are called that were learnt, in the order of the probabilities."""
        names = {each.number: each.name for each in self.classes}
        return [names[number] for number in self._learnt_classes]

    def _forget(self, *, only_if_of: Class | None = None) -> None:
        """Drop what was learnt, as it speaks of classes that are gone."""
        self.is_stale = True
        if only_if_of is None or only_if_of.number in self._learnt_classes:
            self.learnt = None


def checked_name(name: Any, others: Iterable[str]) -> str:
    """A name that a class can have.

    Args:
        name: what somebody typed.
        others: names that are taken.

    Raises:
        ConfigError: it cannot be one.
    """
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
    """Pixels ``[channel, height, width]`` as a file, without loss."""
    return _as_file(pixels, "PNG")


def address(pixels: np.ndarray) -> str:
    """Pixels as the address of an ``<img>``; small, as the page may show hundreds."""
    kind = "PNG" if len(pixels) == 1 else "JPEG"
    content = base64.b64encode(_as_file(pixels, kind)).decode()
    return f"data:image/{kind.lower()};base64,{content}"


def _as_file(pixels: np.ndarray, kind: str) -> bytes:
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    buffer = io.BytesIO()
    image.save(buffer, kind, quality=85)
    return buffer.getvalue()
