"""A store that is being written; writing resumes after a crash at any moment.

.<store>.lock                     held by the writing process
.<store>.partial/journal.jsonl    one line for every finished class, written after its images
.<store>.partial/store/           renamed to the store at the end
.<store>.partial/work/            archives that a source unpacked
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from alfa._io import locked, sync_folder
from alfa.data._base import Split
from alfa.data._store import IMAGES, INDEX, ITEMS, Index, checksum
from alfa.errors import DataError


@dataclass(frozen=True)
class Entry:
    """A written class, the fingerprint of its image names, and notes on images by number."""

    split: Split
    name: str
    listing: str
    count: int = 0
    checksum: str = ""
    left_out: Sequence[tuple[int, str]] = ()
    changed: Sequence[tuple[int, str]] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        return self.split, self.name, self.listing


class Draft(contextlib.ExitStack):
    """A store with images of `shape` that a process is writing; another `key` starts a new one."""

    def __init__(self, place: Path, *, shape: Sequence[int], key: str) -> None:
        super().__init__()
        self.place, self.shape = place, tuple(shape)
        self.path = place.parent / f".{place.name}.partial"
        self.work, self._store = self.path / "work", self.path / "store"
        self._old = place.parent / f".{place.name}.old"
        busy = DataError(f"another process is preparing {place.name}; wait until it finishes.")
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(place.parent / f".{place.name}.lock", busy=busy))
            self.path.mkdir(exist_ok=True)
            self._journal = stack.enter_context((self.path / "journal.jsonl").open("a+b"))
            if self._old.exists() and not place.exists():
                # A killed process moved the old store away, but not the new one to its place.
                self._old.rename(place)
            self._load(key)
            self.push(stack.pop_all())

    def _load(self, key: str) -> None:
        """Read the journal up to the first damaged line."""
        self._journal.seek(0)
        lines = self._journal.read().splitlines(keepends=True)
        head = f"{json.dumps(key)}\n".encode()
        if lines[:1] != [head]:
            for folder in (self._store, self.work):
                shutil.rmtree(folder, ignore_errors=True)
            self._journal.truncate(0)
            self._journal.write(head)
            self._journal.flush()
            lines = [head]
        self.entries: list[Entry] = []
        self._ends = [len(head)]
        for line in lines[1:]:
            try:
                entry = Entry(**json.loads(line))
            except (ValueError, TypeError, RecursionError):
                break
            # A line without its end was cut off when the process was killed.
            if not line.endswith(b"\n"):
                break
            self.entries.append(entry)
            self._ends.append(self._ends[-1] + len(line))
        self.work.mkdir(exist_ok=True)
        self._store.mkdir(exist_ok=True)

    @property
    def num_images(self) -> int:
        return sum(entry.count for entry in self.entries)

    def intact(self, number: int) -> bool:
        """Return True if the pixels of a written class match the checksum in the journal."""
        entry = self.entries[number]
        if entry.count == 0:
            return True
        offset = self._offset(sum(before.count for before in self.entries[:number]))
        shape = (entry.count, *self.shape)
        try:
            pixels = np.memmap(self._store / IMAGES, np.uint8, "r", offset, shape)
        except (OSError, ValueError):
            return False
        return checksum(pixels) == entry.checksum

    def resume_after(self, number: int) -> None:
        """Keep the first `number` classes, and drop everything that was written after them."""
        self.entries = self.entries[:number]
        self._ends = self._ends[: number + 1]
        self._journal.truncate(self._ends[-1])
        images = self._store / IMAGES
        images.touch()
        self._images = self.enter_context(images.open("r+b"))
        self._images.write(_header(0, self.shape))
        self._images.truncate(self._offset(self.num_images))
        self._images.seek(0, os.SEEK_END)
        self._hasher, self._count = hashlib.sha256(), 0

    def write(self, pixels: np.ndarray) -> None:
        """Add uint8 images ``[image, channel, height, width]`` to the current class."""
        self._images.write(pixels.data)
        self._hasher.update(pixels.data)
        self._count += len(pixels)

    def end_class(self, entry: Entry) -> None:
        """Complete the current class, and fill in its count and checksum."""
        # The images must be written before the line that refers to them.
        self._images.flush()
        entry = replace(entry, count=self._count, checksum=self._hasher.hexdigest())
        line = f"{json.dumps(asdict(entry))}\n".encode()
        self._journal.write(line)
        self._journal.flush()
        self.entries.append(entry)
        self._ends.append(self._ends[-1] + len(line))
        self._hasher, self._count = hashlib.sha256(), 0

    def finish(self, index: Index, items: Iterable[str]) -> None:
        """Move the complete store to its place."""
        self._images.seek(0)
        self._images.write(_header(self.num_images, self.shape))
        _sync(self._images)
        # Windows cannot move a folder with an open file.
        self._images.close()
        names = "".join(f"{item}\n" for item in items).encode()
        index = replace(index, items=hashlib.sha256(names).hexdigest())
        for name, content in ((ITEMS, names), (INDEX, f"{index.to_json()}\n".encode())):
            with (self._store / name).open("wb") as file:
                file.write(content)
                _sync(file)
        sync_folder(self._store)
        shutil.rmtree(self._old, ignore_errors=True)
        if self.place.exists():
            self.place.rename(self._old)
        self._store.rename(self.place)
        sync_folder(self.place.parent)
        shutil.rmtree(self._old, ignore_errors=True)
        self.discard()

    def discard(self) -> None:
        """Remove everything except the finished store."""
        if os.name == "nt":
            self._journal.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def _offset(self, num_images: int) -> int:
        return len(_header(0, self.shape)) + num_images * int(np.prod(self.shape))


def _header(num_images: int, shape: Sequence[int]) -> bytes:
    """Return the header of an .npy file; its length does not depend on the number of images."""
    file = io.BytesIO()
    content = {"descr": "|u1", "fortran_order": False, "shape": (num_images, *shape)}
    np.lib.format.write_array_header_1_0(file, content)
    return file.getvalue()


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
