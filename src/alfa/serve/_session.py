"""Sessions: the classes, photos, and classifier of one user."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from alfa.backbones import EmbeddingCache
from alfa.estimator import FewShotClassifier, PreparedImages
from alfa.serve._limits import MAX_NAME, Limits
from alfa.serve._model import ServedModel
from alfa.serve._photo import Photo
from alfa.serve._problem import Problem, unknown

# Saved examples have a folder for each class, so names must be valid on every system.
_FORBIDDEN = set('/\\:*?"<>|')
# Memory for the features of photos that were classified but not added.
_CACHE_BYTES = 2 << 20


@dataclass(frozen=True)
class PhotoClass:
    """A class and its photos."""

    id: str
    name: str
    photos: tuple[Photo, ...] = ()


@dataclass(frozen=True)
class State:
    """The part of a session that `undo` restores; it never changes."""

    classes: tuple[PhotoClass, ...] = ()
    unlabeled: tuple[Photo, ...] = ()

    def photos(self) -> Iterator[Photo]:
        """Yield all photos."""
        yield from itertools.chain(*(each.photos for each in self.classes), self.unlabeled)

    def support(self) -> tuple[tuple[str, str], ...]:
        """Return the identifiers of all labeled photos and their classes."""
        return tuple((photo.id, each.id) for each in self.classes for photo in each.photos)

    def without(self, photo_id: str) -> State:
        """Return the state without a photo."""

        def rest(photos: tuple[Photo, ...]) -> tuple[Photo, ...]:
            return tuple(photo for photo in photos if photo.id != photo_id)

        classes = tuple(replace(each, photos=rest(each.photos)) for each in self.classes)
        return State(classes, rest(self.unlabeled))

    def with_class(self, changed: PhotoClass) -> State:
        """Return the state with a changed class."""
        classes = (changed if each.id == changed.id else each for each in self.classes)
        return replace(self, classes=tuple(classes))


@dataclass(frozen=True, eq=False)
class Prepared:
    """A photo as the input of the session's model, and a remark on its size."""

    images: PreparedImages
    note: str | None


@dataclass(frozen=True, eq=False)
class Learned:
    """A classifier of a session.

    Attributes:
        classifier: the classifier; its labels are identifiers of classes.
        support: the identifiers of the photos that it learned, and their classes.
        seconds: duration of `fit`.
    """

    classifier: FewShotClassifier
    support: tuple[tuple[str, str], ...]
    seconds: float

    @property
    def class_ids(self) -> list[str]:
        """The classes in the order of the probabilities."""
        return [str(label) for label in self.classifier.classes_]


@dataclass(frozen=True)
class _Change:
    """A change that can be undone: its label, and the state before it."""

    label: str
    before: State
    batch: str | None
    count: int


@dataclass(eq=False)
class Session:
    """The classes, photos, and classifier of one user.

    The event loop's thread changes sessions, so a change needs no lock. `lock` is for operations
    that await a result and then store it.
    """

    id: str
    model: ServedModel
    limits: Limits
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    state: State = field(default_factory=State)
    version: int = 1
    uploads: int = 0
    prepared: dict[str, Prepared] = field(default_factory=dict)
    usefulness: dict[str, float] = field(default_factory=dict)
    last_learned: Learned | None = None
    cache: EmbeddingCache = field(init=False)
    _history: list[_Change] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.cache = self.new_cache()

    @staticmethod
    def new_cache() -> EmbeddingCache:
        """Return a cache of features, which a session does not share with others."""
        return EmbeddingCache(max_bytes=_CACHE_BYTES)

    def use_model(
        self, model: ServedModel, prepared: dict[str, Prepared], cache: EmbeddingCache
    ) -> None:
        """Use another model, given its inputs for all photos, and forget the classifier."""
        self.model, self.prepared, self.cache = model, prepared, cache
        self.last_learned, self.usefulness = None, {}
        self._touch()

    @property
    def learned(self) -> Learned | None:
        """The classifier, unless the user has deleted one of its classes."""
        known = {each.id for each in self.state.classes}
        if self.last_learned is None or not known.issuperset(self.last_learned.class_ids):
            return None
        return self.last_learned

    @property
    def is_stale(self) -> bool:
        """Whether the examples changed after the last `learn`."""
        return self.learned is not None and self.learned.support != self.state.support()

    @property
    def undo_label(self) -> str | None:
        return self._history[-1].label if self._history else None

    @property
    def num_photos(self) -> int:
        return sum(1 for _ in self.state.photos())

    @property
    def num_bytes(self) -> int:
        return sum(photo.num_bytes for photo in self.all_photos())

    def all_photos(self) -> list[Photo]:
        """Return all photos, including those that `undo` restores."""
        states = [self.state, *(change.before for change in self._history)]
        found = {photo.id: photo for state in states for photo in state.photos()}
        return list(found.values())

    def get_class(self, class_id: str) -> PhotoClass:
        for each in self.state.classes:
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
        last = self._history[-1] if self._history else None
        if batch is not None and last is not None and last.batch == batch:
            before, count = last.before, last.count + count
            self._history.pop()
        text = label if isinstance(label, str) else label(count)
        self._history.append(_Change(text, before, batch, count))
        del self._history[: -self.limits.undo_steps]
        self.state = state
        self._touch()

    def undo(self) -> None:
        """Restore the state before the last change."""
        if not self._history:
            raise Problem(409, "nothing-to-undo", "there is no change to undo.")
        self.state = self._history.pop().before
        self._touch()

    def forget_history(self) -> None:
        """Free the memory of deleted photos, whose deletion can no longer be undone."""
        self._history.clear()
        self._touch()

    def _touch(self) -> None:
        self.version += 1
        kept = {photo.id for photo in self.all_photos()}
        for photo_id in self.prepared.keys() - kept:
            del self.prepared[photo_id]

    def add_class(self, name: str) -> PhotoClass:
        if len(self.state.classes) >= self.limits.classes:
            raise Problem(
                409,
                "too-many-classes",
                f"a session has at most {self.limits.classes} classes; delete one first.",
            )
        clean = valid_name(name, [each.name for each in self.state.classes])
        new = PhotoClass(f"c{next(self._numbers)}", clean)
        classes = (*self.state.classes, new)
        self.change(f"Add class {quoted(clean)}", replace(self.state, classes=classes))
        return new

    def rename(self, class_id: str, name: str) -> None:
        own = self.get_class(class_id)
        others = [each.name for each in self.state.classes if each.id != class_id]
        clean = valid_name(name, others)
        if clean != own.name:
            label = f"Rename {quoted(own.name)} to {quoted(clean)}"
            self.change(label, self.state.with_class(replace(own, name=clean)))

    def delete_class(self, class_id: str) -> None:
        own = self.get_class(class_id)
        classes = tuple(each for each in self.state.classes if each.id != class_id)
        self.change(f"Delete {quoted(own.name)}", replace(self.state, classes=classes))

    def new_photo(self, photo: Photo, prepared: Prepared, *, labeled: bool) -> Photo:
        """Return a photo with an identifier, and remember the input of the model."""
        photo = photo.with_id(f"{'e' if labeled else 'u'}{next(self._numbers)}")
        self.prepared[photo.id] = prepared
        return photo

    def add_photos(
        self, class_id: str | None, added: Sequence[Photo], *, batch: str | None = None
    ) -> None:
        """Add photos to a class, or unlabeled ones."""
        if class_id is None:
            state = replace(self.state, unlabeled=(*self.state.unlabeled, *added))
            target = "without a label"
        else:
            own = self.get_class(class_id)
            state = self.state.with_class(replace(own, photos=(*own.photos, *added)))
            target = f"to {quoted(own.name)}"

        def label(count: int) -> str:
            return f"Add {photos(count)} {target}"

        self.change(label, state, batch=batch, count=len(added))

    def replace_classes(self, classes: Iterable[tuple[str, Sequence[Photo]]]) -> None:
        """Replace all classes by others."""
        made = tuple(
            PhotoClass(f"c{next(self._numbers)}", name, tuple(photos)) for name, photos in classes
        )
        self.change("Load examples", replace(self.state, classes=made))

    def move(self, photo_id: str, class_id: str) -> None:
        """Move a photo to a class."""
        photo, target = self.get_photo(photo_id), self.get_class(class_id)
        if photo in target.photos:
            return
        rest = self.state.without(photo_id)
        changed = replace(target, photos=(*target.photos, photo))
        label = f"Move {quoted(photo.name)} to {quoted(target.name)}"
        self.change(label, rest.with_class(changed))

    def delete_photo(self, photo_id: str) -> None:
        photo = self.get_photo(photo_id)
        self.change(f"Delete {quoted(photo.name)}", self.state.without(photo_id))

    def images(self, photo_ids: Iterable[str]) -> PreparedImages:
        """Return the inputs of the model for some photos."""
        return PreparedImages.concatenate([self.prepared[each].images for each in photo_ids])

    def learn_reason(self) -> str | None:
        """Return why the session cannot learn yet; None if it can."""
        if len(self.state.classes) < 2:
            return "a classifier needs at least two classes; add one."
        empty = [quoted(each.name) for each in self.state.classes if not each.photos]
        if not empty:
            return None
        verb, it = ("have", "them") if len(empty) > 1 else ("has", "it")
        names = f"{', '.join(empty[:-1])} and {empty[-1]}" if len(empty) > 1 else empty[0]
        return f"{names} {verb} no photos yet; add some, or delete {it}."

    def learn(self, learned: Learned) -> None:
        """Store a classifier."""
        self.last_learned = learned
        self.version += 1

    def rank(self, photo_ids: Sequence[str]) -> None:
        """Store the most helpful unlabeled photos, the best first."""
        count = len(photo_ids)
        self.usefulness = {own: (count - rank) / count for rank, own in enumerate(photo_ids)}
        self.version += 1


def quoted(name: str) -> str:
    return f"“{name}”"


def photos(count: int) -> str:
    return f"{count} {'photo' if count == 1 else 'photos'}"


def valid_name(name: str, others: Iterable[str]) -> str:
    """Return a class name with normalized white space; raise if it is invalid or taken."""
    clean = " ".join(name.split())
    problem = None
    if not clean.strip(". "):
        problem = "a class needs a name; enter a word or two."
    elif len(clean) > MAX_NAME:
        problem = f"`name` must have at most {MAX_NAME} characters, got {len(clean)}."
    elif _FORBIDDEN & set(clean) or clean != clean.strip(". ") or not clean.isprintable():
        problem = (
            'a class name must not contain / \\ : * ? " < > | or start or end with a dot, because '
            "saved examples use it as a folder name; choose another."
        )
    if problem is not None:
        raise Problem(422, "invalid-name", problem, field="name")
    if clean.casefold() in {other.casefold() for other in others}:
        detail = f"`name` {clean!r} is already a class; choose another name."
        raise Problem(409, "class-name-taken", detail, field="name")
    return clean
