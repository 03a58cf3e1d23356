"""Prepared datasets: one memory-mapped file of images, with an index and checksums.

index.json    the classes
images.npy    uint8 [image, channel, height, width], class by class
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
_ADVICE = "re-run the command that prepared it (with --force, except for `alfa train`)"


@dataclass(frozen=True)
class StoredClass:
    """A class: its first image, its number of images, and the SHA-256 of their pixels."""

    split: Split
    name: str
    first: int
    count: int
    checksum: str


@dataclass(frozen=True)
class Index:
    """The index of a store; `mean` and `std` are those of an `ImageSet`."""

    dataset: str
    size: int  # the side of every image
    num_channels: int
    mean: Sequence[float]
    std: Sequence[float]
    classes: Sequence[StoredClass]  # in the order of the images
    left_out: Sequence[str] = ()  # skipped images and classes, with the reasons
    changed: Sequence[str] = ()  # converted images, with the conversions
    items: str = ""  # the SHA-256 of the list of image names
    listing: str = ""  # the SHA-256 of the names of all images found, including skipped ones
    format: int = FORMAT
    source: str = ""  # the dataset that it was prepared from, if that has another name

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Index:
        """Parse an index; raise a ValueError if it is damaged."""
        content: dict[str, Any] = json.loads(text)
        try:
            if content["format"] != FORMAT:
                raise ValueError(
                    f"it has format {content['format']}, but this version of alfa reads {FORMAT}"
                )
            classes = tuple(StoredClass(**entry) for entry in content.pop("classes"))
            index = cls(classes=classes, **content)
            index._check()
        except (TypeError, KeyError) as error:
            raise ValueError(f"{INDEX} is incomplete: {error}") from None
        return index

    def _check(self) -> None:
        if not isinstance(self.source, str):
            raise ValueError(f"`source` in {INDEX} must be a name, got {self.source!r}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            finite = all(isinstance(x, int | float) and abs(x) < math.inf for x in values)
            if len(values) != self.num_channels or not finite:
                raise ValueError(
                    f"`{name}` in {INDEX} must be one number for each channel, got {list(values)}"
                )
        first = 0
        for entry in self.classes:
            if entry.split not in SPLITS or entry.first != first or entry.count < 1:
                raise ValueError(f"class {entry.name} in {INDEX} is inconsistent with the others")
            first += entry.count

    def digest(self) -> str:
        """Return a digest of the images, classes, and splits."""
        return _digest([(entry.split, entry.name, entry.checksum) for entry in self.classes])

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the array of images."""
        num_images = sum(entry.count for entry in self.classes)
        return num_images, self.num_channels, self.size, self.size

    def of_split(self, split: Split) -> list[StoredClass]:
        return [entry for entry in self.classes if entry.split == split]

    def counts(self) -> dict[Split, tuple[int, int]]:
        """Return the number of classes and of images in every split that has any."""
        found = {split: [entry.count for entry in self.of_split(split)] for split in SPLITS}
        return {split: (len(counts), sum(counts)) for split, counts in found.items() if counts}


class Store:
    """A prepared dataset in the folder `path`; its images are mapped into memory."""

    def __init__(self, path: Path, index: Index, images: np.ndarray) -> None:
        self.path, self.index, self.images = path, index, images
        self._opened = (path / IMAGES).stat()

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open a store without reading its images; raise a DataError if it cannot be used."""
        try:
            index = Index.from_json((path / INDEX).read_text(encoding="utf-8"))
            # A plain array view is faster to access than numpy.memmap.
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
        # NumPy parses the header of the file as Python code.
        except (ValueError, EOFError, SyntaxError, TokenError, RecursionError) as error:
            raise DataError(
                f"the prepared dataset {path} cannot be used ({error}); {_ADVICE}."
            ) from None
        return cls(path, index, images)

    def image_set(self) -> ImageSet:
        """Return the images by split and class."""
        index, splits = self.index, {}
        for split in index.counts():
            classes = index.of_split(split)
            first, count = np.array([(entry.first, entry.count) for entry in classes]).T
            splits[split] = Classes(tuple(entry.name for entry in classes), first, count)
        return ImageSet(
            index.dataset,
            self.images,
            splits,
            index.mean,
            index.std,
            digest=index.digest(),
            store=self,
            source=index.source,
        )

    def check_unchanged(self) -> None:
        """Raise a DataError if the file of images was modified since it was opened."""
        try:
            now = (self.path / IMAGES).stat()
        except OSError:
            return
        then = self._opened
        # The mapped images of a removed or replaced file stay readable.
        is_same = (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino)
        if is_same and (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns):
            raise DataError(
                f"{self.path / IMAGES} was changed while it was being read; {_ADVICE}, then resume."
            )

    @property
    def stamp(self) -> str:
        """The size and modification time of the file of images when it was opened."""
        return f"{self._opened.st_size}-{self._opened.st_mtime_ns}"

    def items(self) -> list[str]:
        """Return the names of all images, in their order."""
        return (self.path / ITEMS).read_text(encoding="utf-8").split("\n")[:-1]

    def names_digest(self, split: Split) -> str:
        """Return a digest of the image names in a split, which does not depend on the size."""
        try:
            names = self.items()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise DataError(f"{self.path / ITEMS} cannot be read ({reason}); {_ADVICE}.") from None
        classes = self.index.of_split(split)
        return _digest([[c.name, c.count, *names[c.first : c.first + c.count]] for c in classes])

    def verify(self, on_progress: Callable[[int], None] = lambda done: None) -> list[str]:
        """Verify all checksums, and return a sentence for each damaged file or class."""
        faults = []
        try:
            if hashlib.sha256((self.path / ITEMS).read_bytes()).hexdigest() != self.index.items:
                faults.append(f"{ITEMS}: the checksum of the names is wrong.")
        except OSError as error:
            faults.append(f"{ITEMS}: cannot be read ({error.strerror}).")
        return faults + self.verify_pixels(on_progress)

    def verify_pixels(self, on_progress: Callable[[int], None] = lambda done: None) -> list[str]:
        """Verify the checksums of the images only."""
        faults: list[str] = []
        for entry in self.index.classes:
            end = entry.first + entry.count
            if checksum(self.images[entry.first : end]) != entry.checksum:
                faults.append(f"{entry.split}/{entry.name}: the checksum of the pixels is wrong.")
            on_progress(end)
        return faults

    def check_pixels(self) -> None:
        """Raise a DataError that names the first damaged class, if there is one."""
        faults = self.verify_pixels()
        if faults:
            more = f", and {len(faults) - 1} more classes" if faults[1:] else ""
            raise DataError(
                f"{self.path / IMAGES} differs from the prepared images: "
                f"{faults[0].removesuffix('.')}{more}; {_ADVICE}, then resume."
            )


def checksum(pixels: np.ndarray) -> str:
    """Return the SHA-256 of pixels."""
    return hashlib.sha256(np.ascontiguousarray(pixels).data).hexdigest()


def fingerprint(names: Iterable[str]) -> str:
    """Return the SHA-256 of names, in their order."""
    # File names need not be valid text.
    text = "".join(f"{name}\0" for name in names)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
