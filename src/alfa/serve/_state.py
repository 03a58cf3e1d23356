"""The classes and photos of a session, which never change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from alfa.serve._photo import Photo


@dataclass(frozen=True)
class PhotoClass:
    """A class and its photos."""

    id: str
    name: str
    examples: tuple[Photo, ...] = ()


@dataclass(frozen=True)
class State:
    """The part of a session that `undo` restores; it never changes."""

    classes: tuple[PhotoClass, ...] = ()
    unlabeled: tuple[Photo, ...] = ()

    def photos(self) -> list[Photo]:
        """Return all photos."""
        return [*(photo for each in self.classes for photo in each.examples), *self.unlabeled]

    def support(self) -> list[tuple[Photo, PhotoClass]]:
        """Return all labeled photos and their classes."""
        return [(photo, each) for each in self.classes for photo in each.examples]

    def with_class(self, changed: PhotoClass) -> State:
        """Return the state with a changed class."""
        classes = (changed if each.id == changed.id else each for each in self.classes)
        return replace(self, classes=tuple(classes))

    def with_photos(self, photos: Mapping[str, Photo | None]) -> State:
        """Return the state with other photos of the same identifiers; None deletes a photo."""

        def changed(old: Iterable[Photo]) -> tuple[Photo, ...]:
            new = (photos.get(photo.id, photo) for photo in old)
            return tuple(photo for photo in new if photo is not None)

        classes = (replace(each, examples=changed(each.examples)) for each in self.classes)
        return State(tuple(classes), changed(self.unlabeled))


def quoted(name: str) -> str:
    return f"“{name}”"


def counted(count: int) -> str:
    return f"{count} {'photo' if count == 1 else 'photos'}"
