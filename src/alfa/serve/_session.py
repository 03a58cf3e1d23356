"""Sessions: the classes, photos, and classifier of one user."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from alfa.backbones import EmbeddingCache
from alfa.serve._learned import Learned
from alfa.serve._limits import Limits
from alfa.serve._model import Model
from alfa.serve._photo import Photo
from alfa.serve._problem import Problem, unknown
from alfa.serve._state import PhotoClass, State, counted, quoted
from alfa.serve._warnings import Warning, find_warnings

# Saved examples have a folder for each class, so names must be valid on every system.
_FORBIDDEN = set('/\\:*?"<>|')
# Memory for the features of photos that were classified but not added.
_CACHE_BYTES = 2 << 20


@dataclass(frozen=True)
class _Change:
    """A change that can be undone: its label, the state before it, and its batch."""

    label: str
    before: State
    batch: str | None
    count: int


@dataclass(eq=False)
class Session:
    """The classes, photos, and classifier of one user.

    The thread of the event loop changes sessions, so a change needs no lock. `lock` is for
    operations that await a result and then store it.
    """

    id: str
    model: Model
    limits: Limits
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    cache: EmbeddingCache = field(default_factory=lambda: EmbeddingCache(max_bytes=_CACHE_BYTES))
    state: State = field(default_factory=State)
    version: int = 1
    uploads: int = 0
    last_learned: Learned | None = None
    _history: list[_Change] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def classes(self) -> tuple[PhotoClass, ...]:
        return self.state.classes

    @property
    def unlabeled(self) -> tuple[Photo, ...]:
        return self.state.unlabeled

    @property
    def warnings(self) -> list[Warning]:
        return list(find_warnings(self.state))

    @property
    def learned(self) -> Learned | None:
        """The classifier, unless the user has deleted one of its classes."""
        known = {each.id for each in self.classes}
        learned = self.last_learned
        return learned if learned is not None and known.issuperset(learned.class_ids) else None

    @property
    def stale(self) -> bool:
        """Whether the examples changed after the last `learn`."""
        support = [(photo.id, each.id) for photo, each in self.state.support()]
        return self.learned is not None and self.learned.support != support

    @property
    def can_undo(self) -> bool:
        return bool(self._history)

    @property
    def undo_label(self) -> str | None:
        return self._history[-1].label if self._history else None

    @property
    def num_bytes(self) -> int:
        return sum(photo.num_bytes for photo in self.all_photos().values())

    def all_photos(self) -> dict[str, Photo]:
        """Return all photos by identifier, including those that `undo` restores."""
        states = [*(change.before for change in self._history), self.state]
        return {photo.id: photo for state in states for photo in state.photos()}

    def new_id(self, kind: str) -> str:
        """Return an identifier that the session has never used."""
        return f"{kind}{next(self._numbers)}"

    def get_class(self, class_id: str) -> PhotoClass:
        for each in self.classes:
            if each.id == class_id:
                return each
        raise unknown("class", class_id)

    def get_photo(self, photo_id: str) -> Photo:
        for photo in self.state.photos():
            if photo.id == photo_id:
                return photo
        raise unknown("example", photo_id)

    def change(
        self,
        label: str | Callable[[int], str],
        state: State,
        *,
        batch: str | None = None,
        count: int = 1,
    ) -> None:
        """Replace the state; `undo` restores the old one.

        Successive changes of one `batch` count as one, whose label depends on the sum of counts.
        """
        before = self.state
        if batch is not None and self._history and self._history[-1].batch == batch:
            last = self._history.pop()
            before, count = last.before, last.count + count
        text = label if isinstance(label, str) else label(count)
        self._history.append(_Change(text, before, batch, count))
        del self._history[: -self.limits.undo_steps]
        self.state, self.version = state, self.version + 1

    def undo(self) -> None:
        """Restore the state before the last change."""
        if not self._history:
            raise Problem(409, "nothing-to-undo", "there is no change to undo.")
        self.state, self.version = self._history.pop().before, self.version + 1

    def forget_history(self) -> None:
        """Free the memory of deleted photos, whose deletion can no longer be undone."""
        self._history.clear()

    def learn(self, learned: Learned) -> None:
        """Store a classifier."""
        self.last_learned, self.version = learned, self.version + 1

    def use_model(self, model: Model, photos: Mapping[str, Photo]) -> None:
        """Use another model, given all photos with its inputs, and forget the classifier."""
        self._history = [
            replace(change, before=change.before.with_photos(photos)) for change in self._history
        ]
        self.state = self.state.with_photos(photos)
        self.model, self.last_learned, self.version = model, None, self.version + 1
        self.cache.clear()

    def add_class(self, name: str) -> PhotoClass:
        if len(self.classes) >= self.limits.classes:
            detail = f"a session has at most {self.limits.classes} classes; delete one first."
            raise Problem(409, "too-many-classes", detail)
        new = PhotoClass(self.new_id("c"), self.valid_name(name, self.classes))
        state = replace(self.state, classes=(*self.classes, new))
        self.change(f"Add class {quoted(new.name)}", state)
        return new

    def rename(self, class_id: str, name: str) -> None:
        own = self.get_class(class_id)
        clean = self.valid_name(name, [each for each in self.classes if each is not own])
        if clean != own.name:
            label = f"Rename {quoted(own.name)} to {quoted(clean)}"
            self.change(label, self.state.with_class(replace(own, name=clean)))

    def delete_class(self, class_id: str) -> None:
        own = self.get_class(class_id)
        rest = tuple(each for each in self.classes if each is not own)
        self.change(f"Delete {quoted(own.name)}", replace(self.state, classes=rest))

    def add_photos(
        self, class_id: str | None, photos: Sequence[Photo], *, batch: str | None = None
    ) -> None:
        """Add photos to a class, or unlabeled ones."""
        if class_id is None:
            state = replace(self.state, unlabeled=(*self.unlabeled, *photos))
            target = "without a label"
        else:
            own = self.get_class(class_id)
            state = self.state.with_class(replace(own, examples=(*own.examples, *photos)))
            target = f"to {quoted(own.name)}"

        def label(count: int) -> str:
            return f"Add {counted(count)} {target}"

        self.change(label, state, batch=batch, count=len(photos))

    def replace_classes(self, classes: Iterable[tuple[str, Sequence[Photo]]]) -> None:
        """Replace all classes by others."""
        made = (PhotoClass(self.new_id("c"), name, tuple(photos)) for name, photos in classes)
        self.change("Load examples", replace(self.state, classes=tuple(made)))

    def move(self, photo_id: str, class_id: str) -> None:
        """Move a photo to a class."""
        photo, own = self.get_photo(photo_id), self.get_class(class_id)
        if photo not in own.examples:
            changed = replace(own, examples=(*own.examples, photo))
            state = self.state.with_photos({photo_id: None}).with_class(changed)
            self.change(f"Move {quoted(photo.name)} to {quoted(own.name)}", state)

    def delete_photo(self, photo_id: str) -> None:
        photo = self.get_photo(photo_id)
        self.change(f"Delete {quoted(photo.name)}", self.state.with_photos({photo_id: None}))

    def rank(self, ranked: Sequence[str]) -> None:
        """Put the most helpful unlabeled photos first, given their identifiers."""
        count, known = len(ranked), {photo.id: photo for photo in self.unlabeled}
        first = [
            replace(known.pop(photo_id), usefulness=(count - rank) / count)
            for rank, photo_id in enumerate(ranked)
            # The user may have labeled or deleted others in the meantime.
            if photo_id in known
        ]
        rest = (replace(photo, usefulness=None) for photo in known.values())
        self.state = replace(self.state, unlabeled=(*first, *rest))
        self.version += 1

    @property
    def learn_reason(self) -> str | None:
        """Why the session cannot learn yet; None if it can."""
        if len(self.classes) < 2:
            return "a classifier needs at least two classes; add one."
        empty = [quoted(each.name) for each in self.classes if not each.examples]
        if len(empty) > 1:
            names = f"{', '.join(empty[:-1])} and {empty[-1]}"
            return f"{names} have no photos yet; add some, or delete them."
        return f"{empty[0]} has no photos yet; add some, or delete it." if empty else None

    def valid_name(self, name: str, others: Iterable[PhotoClass]) -> str:
        """Return a class name with normalized white space; raise if it is invalid or taken."""
        clean, most, detail = " ".join(name.split()), self.limits.name_length, None
        if not clean.strip(". "):
            detail = "a class needs a name; enter a word or two."
        elif len(clean) > most:
            detail = f"`name` must have at most {most} characters, got {len(clean)}."
        elif _FORBIDDEN & set(clean) or clean != clean.strip(". ") or not clean.isprintable():
            detail = (
                'a class name must not contain / \\ : * ? " < > | or start or end with a dot, '
                "because saved examples use it as a folder name; choose another."
            )
        if detail is not None:
            raise Problem(422, "invalid-name", detail, field="name")
        if clean.casefold() in {other.name.casefold() for other in others}:
            detail = f"`name` {clean!r} is already a class; choose another name."
            raise Problem(409, "class-name-taken", detail, field="name")
        return clean
