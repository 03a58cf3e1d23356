"""A prepared dataset: images in one file that is mapped, not read, with an index and checksums.

index.json    what is there, class by class; small
images.npy    uint8 [image, channel, height, width], class after class
items.txt     the name of every image, one per line
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from alfa.data._base import SPLITS, Split
from alfa.data._image_set import Classes, ImageSet
from alfa.errors import DataError

FORMAT = 1
INDEX, IMAGES, ITEMS = "index.json", "images.npy", "items.txt"
_ADVICE = "make it anew with the command that prepared it, and, but for `alfa train`, --force"


@dataclass(frozen=True)
class StoredClass:
    """One class of a store.

    Attributes:
        split: it belongs to.
        name: of the class.
        first: the number of its first image.
        count: its images.
        checksum: SHA-256 of their pixels.
    """

    split: Split
    name: str
    first: int
    count: int
    checksum: str


@dataclass(frozen=True)
class Index:
    """What a store holds.

    Attributes:
        dataset: its name.
        size: the side of every image.
        num_channels: of every image.
        mean: of every channel on the scale from 0 to 1, to normalise a model's inputs.
        std: of every channel, likewise.
        classes: in the order of the images.
        left_out: images and classes that could not be used, by name.
        changed: images that were not of the dataset's kind, and what was done, by name.
        items: SHA-256 of the list of images.
        listing: SHA-256 of the names of all images that were found, those left out as well.
        source: the dataset that it was made from, where its own name is another one.
    """

    dataset: str
    size: int
    num_channels: int
    mean: Sequence[float]
    std: Sequence[float]
    classes: Sequence[StoredClass]
    left_out: Sequence[str] = ()
    changed: Sequence[str] = ()
    items: str = ""
    listing: str = ""
    format: int = FORMAT
    source: str = ""

    def to_json(self) -> str:
        content = asdict(self)
        # Without it, older versions of alfa can read the store.
        if not self.source:
            del content["source"]
        return json.dumps(content, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Index:
        """Read an index.

        Raises:
            ValueError: it is none; says why.
        """
        content: dict[str, Any] = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError(f"{INDEX} holds no table")
        if content.get("format") != FORMAT:
            raise ValueError(
                f"it has format {content.get('format')}, but this version of alfa reads {FORMAT}"
            )
        try:
            classes = tuple(StoredClass(**entry) for entry in content.pop("classes"))
            index = cls(classes=classes, **content)
            index._check()
        except (TypeError, KeyError) as error:
            raise ValueError(f"{INDEX} is incomplete: {error}") from None
        return index

    def _check(self) -> None:
        if not isinstance(self.source, str):
            raise ValueError(f"the source in {INDEX} is {self.source!r}, and no name")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != self.num_channels or not all(map(_is_finite, values)):
                raise ValueError(
                    f"{name} in {INDEX} is {list(values)}, and not a number for each channel"
                )
        first = 0
        for entry in self.classes:
            if entry.split not in SPLITS or entry.first != first or entry.count < 1:
                raise ValueError(f"the class {entry.name} of {INDEX} does not fit the others")
            first += entry.count

    def digest(self) -> str:
        """The same for stores with the same images in the same classes and splits."""
        classes = [(entry.split, entry.name, entry.checksum) for entry in self.classes]
        return hashlib.sha256(json.dumps(classes).encode()).hexdigest()[:16]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of all images."""
        num_images = sum(entry.count for entry in self.classes)
        return num_images, self.num_channels, self.size, self.size

    def counts(self) -> dict[Split, tuple[int, int]]:
        """Classes and images of every split."""
        found = {}
        for split in SPLITS:
            counts = [entry.count for entry in self.classes if entry.split == split]
            if counts:
                found[split] = len(counts), sum(counts)
        return found


class Store:
    """A prepared dataset, opened without reading its images.

    Args:
        path: the folder.
        index: what it holds.
        images: the pixels.
    """

    def __init__(self, path: Path, index: Index, images: np.ndarray) -> None:
        self.path, self.index, self.images = path, index, images
        self._opened = (path / IMAGES).stat()

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open a store.

        Raises:
            DataError: it is not one, or damaged, or of another version.
        """
        try:
            index = Index.from_json((path / INDEX).read_text(encoding="utf-8"))
            # A plain view: numpy's own class for mapped files makes every access slower.
            images = np.asarray(np.load(path / IMAGES, mmap_mode="r", allow_pickle=False))
            if images.shape != index.shape or images.dtype != np.uint8:
                raise ValueError(
                    f"its images are {images.dtype} {list(images.shape)}, not uint8 "
                    f"{list(index.shape)}"
                )
        except (FileNotFoundError, NotADirectoryError) as error:
            raise DataError(
                f"{path} is not a prepared dataset: it has no {Path(error.filename).name}; "
                f"{_ADVICE}."
            ) from None
        except OSError as error:
            raise DataError(
                f"the prepared dataset {path} cannot be read: {error.strerror or error}."
            ) from None
        # Of a damaged header, numpy also says what Python thinks of it.
        except (ValueError, EOFError, SyntaxError, TokenError, RecursionError) as error:
            raise DataError(
                f"the prepared dataset {path} cannot be used ({error}); {_ADVICE}."
            ) from None
        return cls(path, index, images)

    def image_set(self) -> ImageSet:
        """The same as images by split and class."""
        splits: dict[Split, Classes] = {}
        for split in SPLITS:
            entries = [entry for entry in self.index.classes if entry.split == split]
            if entries:
                splits[split] = Classes(
                    tuple(entry.name for entry in entries),
                    np.array([entry.first for entry in entries]),
                    np.array([entry.count for entry in entries]),
                )
        index = self.index
        return ImageSet(
            index.dataset,
            self.images,
            splits,
            index.mean,
            index.std,
            digest=index.digest(),
            check_file=self.check_file,
            source=index.source,
        )

    def check_file(self) -> None:
        """Make sure that the images are still those that were opened.

        Raises:
            DataError: somebody has written into their file, or cut it off.
        """
        try:
            now = (self.path / IMAGES).stat()
        except OSError:
            # Removed or out of reach: what was mapped stays as it is.
            return
        opened = self._opened
        if (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino):
            return  # replaced as a whole, likewise
        if (now.st_size, now.st_mtime_ns) != (opened.st_size, opened.st_mtime_ns):
            raise DataError(
                f"{self.path / IMAGES} was changed while it was being read; {_ADVICE}, and go on."
            )

    @property
    def stamp(self) -> str:
        """Of the file of the images as it was opened: another one after it was written into."""
        return f"{self._opened.st_size}-{self._opened.st_mtime_ns}"

    def items(self) -> list[str]:
        """The name of every image, in their order."""
        return (self.path / ITEMS).read_text(encoding="utf-8").split("\n")[:-1]

    def listed(self, split: Split) -> str:
        """The same for stores with images of the same names in a split, whatever their size.

        Raises:
            DataError: the names cannot be read.
        """
        try:
            names = self.items()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise DataError(f"{self.path / ITEMS} cannot be read ({reason}); {_ADVICE}.") from None
        classes = [
            [entry.name, entry.count, *names[entry.first : entry.first + entry.count]]
            for entry in self.index.classes
            if entry.split == split
        ]
        return hashlib.sha256(json.dumps(classes).encode()).hexdigest()[:16]

    def verify(self, on_progress: Callable[[int], None] = lambda done: None) -> list[str]:
        """Compare every checksum, and the number of names.

        Args:
            on_progress: called with the number of images that have been compared.

        Returns:
            What is wrong, one sentence for each file or class; nothing if all is well.
        """
        return self._verify_items() + self.verify_pixels(on_progress)

    def verify_pixels(self, on_progress: Callable[[int], None] = lambda done: None) -> list[str]:
        """The same of the images alone."""
        faults: list[str] = []
        done = 0
        for entry in self.index.classes:
            if checksum(self.images[entry.first : entry.first + entry.count]) != entry.checksum:
                faults.append(f"{entry.split}/{entry.name}: its pixels are not those prepared.")
            done += entry.count
            on_progress(done)
        return faults

    def _verify_items(self) -> list[str]:
        try:
            content = (self.path / ITEMS).read_bytes()
        except OSError as error:
            return [f"{ITEMS}: cannot be read ({error.strerror})."]
        if hashlib.sha256(content).hexdigest() != self.index.items:
            return [f"{ITEMS}: its names are not those prepared."]
        return []


def stamp_of(sets: Iterable[ImageSet]) -> str:
    """The stamps of the stores that sets of images are mapped from; nothing if there are none."""
    return " ".join(store.stamp for store in map(_store_of, sets) if store is not None)


def listed_in(sets: Iterable[ImageSet], split: Split) -> str:
    """What the stores that sets of images are mapped from list for a split, by its names."""
    stores = (store for store in map(_store_of, sets) if store is not None)
    return " ".join(store.listed(split) for store in stores)


def verify_pixels(sets: Iterable[ImageSet]) -> None:
    """Compare all images that are mapped from stores with their checksums.

    Raises:
        DataError: a store has other images than were prepared; names their first class.
    """
    for images in sets:
        store = _store_of(images)
        faults = [] if store is None else store.verify_pixels()
        if store is not None and faults:
            more = f", and {len(faults) - 1} more classes" if faults[1:] else ""
            raise DataError(
                f"{store.path / IMAGES} does not hold what was prepared: "
                f"{faults[0].removesuffix('.')}{more}; {_ADVICE}, and go on."
            )


def _store_of(images: ImageSet) -> Store | None:
    owner = getattr(images.check_file, "__self__", None)
    return owner if isinstance(owner, Store) else None


def checksum(pixels: np.ndarray) -> str:
    """SHA-256 of pixels."""
    return hashlib.sha256(np.ascontiguousarray(pixels).data).hexdigest()


def fingerprint(names: Iterable[str]) -> str:
    """SHA-256 of names, in their order."""
    # Names from a disk need not be valid text.
    text = "".join(f"{name}\0" for name in names)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < math.inf
