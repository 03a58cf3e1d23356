"""A prepared dataset: images in one file that is memory-mapped, with an index and checksums.

index.json    the classes; small
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
    """One class of a store: its first image, their number, and SHA-256 of their pixels."""

    split: Split
    name: str
    first: int
    count: int
    checksum: str


@dataclass(frozen=True)
class Index:
    """The content of a store.

    Attributes:
        dataset: its name.
        size: the side of every image.
        num_channels: of every image.
        mean: of every channel on the scale from 0 to 1, to normalise a model's inputs.
        std: of every channel, likewise.
        classes: in the order of the images.
        left_out: images and classes that could not be used, by name.
        changed: images that were converted, and how, by name.
        items: SHA-256 of the list of images.
        listing: SHA-256 of the names of all images that were found, including those left out.
        source: the dataset that it was made from, if its own name is another one.
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
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Index:
        """Parse an index; raises ValueError if it is damaged."""
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
            finite = all(isinstance(x, int | float) and abs(x) < math.inf for x in values)
            if len(values) != self.num_channels or not finite:
                raise ValueError(
                    f"{name} in {INDEX} is {list(values)}, and not a number for each channel"
                )
        first = 0
        for entry in self.classes:
            if entry.split not in SPLITS or entry.first != first or entry.count < 1:
                raise ValueError(f"the class {entry.name} of {INDEX} does not fit the others")
            first += entry.count

    def digest(self) -> str:
        """Identifies the images, classes, and splits."""
        return _digest([(entry.split, entry.name, entry.checksum) for entry in self.classes])

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of all images."""
        num_images = sum(entry.count for entry in self.classes)
        return num_images, self.num_channels, self.size, self.size

    def of_split(self, split: Split) -> list[StoredClass]:
        return [entry for entry in self.classes if entry.split == split]

    def counts(self) -> dict[Split, tuple[int, int]]:
        """Classes and images of every split that has any."""
        found = {split: [entry.count for entry in self.of_split(split)] for split in SPLITS}
        return {split: (len(counts), sum(counts)) for split, counts in found.items() if counts}


class Store:
    """A prepared dataset, opened without reading its images.

    Args:
        path: the folder.
        index: its content.
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
            # A plain view: access to numpy's own class for mapped files is slower.
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
        # For a damaged header, numpy also raises errors of Python's parser.
        except (ValueError, EOFError, SyntaxError, TokenError, RecursionError) as error:
            raise DataError(
                f"the prepared dataset {path} cannot be used ({error}); {_ADVICE}."
            ) from None
        return cls(path, index, images)

    def image_set(self) -> ImageSet:
        """The images by split and class."""
        index = self.index
        splits = {
            split: Classes(
                tuple(entry.name for entry in index.of_split(split)),
                np.array([entry.first for entry in index.of_split(split)]),
                np.array([entry.count for entry in index.of_split(split)]),
            )
            for split in index.counts()
        }
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
        """Make sure that the file of the images is still the one that was opened.

        Raises:
            DataError: it was written to, or cut off.
        """
        try:
            now = (self.path / IMAGES).stat()
        except OSError:
            # Removed or out of reach: the mapped images stay as they are.
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
        """Size and time of the file of the images when it was opened."""
        return f"{self._opened.st_size}-{self._opened.st_mtime_ns}"

    def items(self) -> list[str]:
        """The name of every image, in their order."""
        return (self.path / ITEMS).read_text(encoding="utf-8").split("\n")[:-1]

    def names_digest(self, split: Split) -> str:
        """Identifies the names of the images of a split, whatever their size.

        Raises:
            DataError: the names cannot be read.
        """
        try:
            names = self.items()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise DataError(f"{self.path / ITEMS} cannot be read ({reason}); {_ADVICE}.") from None
        return _digest(
            [
                [entry.name, entry.count, *names[entry.first : entry.first + entry.count]]
                for entry in self.index.of_split(split)
            ]
        )

    def verify(self, on_progress: Callable[[int], None] = lambda done: None) -> list[str]:
        """Compare all checksums.

        Args:
            on_progress: is called with the number of images that have been compared.

        Returns:
            A sentence for each damaged file or class; empty if all is well.
        """
        try:
            content = (self.path / ITEMS).read_bytes()
        except OSError as error:
            faults = [f"{ITEMS}: cannot be read ({error.strerror})."]
        else:
            same = hashlib.sha256(content).hexdigest() == self.index.items
            faults = [] if same else [f"{ITEMS}: its names are not those prepared."]
        return faults + self.verify_pixels(on_progress)

    def verify_pixels(self, on_progress: Callable[[int], None] = lambda done: None) -> list[str]:
        """Compare the checksums of the images alone."""
        faults: list[str] = []
        for entry in self.index.classes:
            end = entry.first + entry.count
            if checksum(self.images[entry.first : end]) != entry.checksum:
                faults.append(f"{entry.split}/{entry.name}: its pixels are not those prepared.")
            on_progress(end)
        return faults

    def check_pixels(self) -> None:
        """Raise a DataError, which names the first class, if `verify_pixels` finds any."""
        faults = self.verify_pixels()
        if faults:
            more = f", and {len(faults) - 1} more classes" if faults[1:] else ""
            raise DataError(
                f"{self.path / IMAGES} does not hold what was prepared: "
                f"{faults[0].removesuffix('.')}{more}; {_ADVICE}, and go on."
            )


def checksum(pixels: np.ndarray) -> str:
    """SHA-256 of pixels."""
    return hashlib.sha256(np.ascontiguousarray(pixels).data).hexdigest()


def fingerprint(names: Iterable[str]) -> str:
    """SHA-256 of names, in their order."""
    # Names from a disk need not be valid text.
    text = "".join(f"{name}\0" for name in names)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
