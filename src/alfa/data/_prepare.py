"""Prepare a dataset: decode every image once, in parallel, and write a store."""

import contextlib
import errno
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from alfa._runtime import usable_cpus
from alfa.data._base import SPLITS
from alfa.data._decode import Crop
from alfa.data._draft import Draft, Entry
from alfa.data._open import store_path
from alfa.data._store import FORMAT, Index, Store, StoredClass, fingerprint
from alfa.data._workers import AT_ONCE, decode_all, decode_chunks, suppress_pillow_warnings
from alfa.data.photos import fix_or_skip, printable
from alfa.data.sources import SOURCES, Item, Listing, Problem, Source, Workspace
from alfa.errors import ConfigError, DataError, check_choice

# The number of problems in an error message; the report lists all of them.
_MAX_SHOWN = 20


@dataclass(frozen=True)
class PrepareProgress:
    """The progress of `prepare`, with a message for the user."""

    done: int  # decoded and written images, or bytes of `archive` that were read
    total: int  # images of the dataset, or bytes of `archive`; 0 while searching for images
    message: str | None = None
    archive: str | None = None  # the archive that is being unpacked


_Class = tuple[Entry, Sequence[Item]]
"""A class before it is written, and its images, which have not been read yet."""


def prepare(
    source: Source,
    path: Path,
    *,
    root: Path,
    size: int | None = None,
    name: str | None = None,
    on_problem: Literal["stop", "skip"] = "stop",
    workers: int | None = None,
    force: bool = False,
    on_progress: Callable[[PrepareProgress], None] = lambda progress: None,
) -> Store:
    """Write the store of a dataset, completely or not at all.

    After a crash, the next call resumes after the last finished class. The result depends neither
    on crashes nor on the number of workers.

    Args:
        source: the dataset.
        path: its folder or archive, in one of the layouts of `source`.
        root: the folder of all prepared datasets.
        size: the side of the prepared images; the source's size by default.
        name: the name of the prepared dataset; the source's name by default.
        on_problem: ``"stop"`` lists all unusable images and classes and writes no store;
            ``"skip"`` leaves them out.
        workers: the number of decoding threads or processes; one for each CPU by default.
        force: replace an existing store.
        on_progress: called with the progress.
    """
    check_choice("on_problem", on_problem, ("stop", "skip"))
    name, size = name or SOURCES.name_of(source), source.size if size is None else size
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise ConfigError(
            "`name` must contain only letters, digits, '_', '-', '+', and '.', and begin with a "
            f"letter, digit, or '_', got {name!r}."
        )
    if size < 1:
        raise ConfigError(f"`size` must be at least 1, got {size}.")
    place, workers = store_path(name, size, root=root), workers or usable_cpus()
    job = _Job(source, path, place, size, name, on_problem, workers, on_progress)
    try:
        return job.run(force=force)
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "; free disk space and run the command again to resume" if is_full else ""
        raise DataError(
            f"{name} could not be prepared: {error.strerror or error} "
            f"({error.filename or place.parent}){advice}."
        ) from error


@dataclass(frozen=True)
class _Job:
    source: Source
    path: Path
    place: Path
    size: int
    name: str
    on_problem: str
    workers: int
    on_progress: Callable[[PrepareProgress], None]

    @property
    def report(self) -> Path:
        return self.place.parents[1] / "reports" / f"{self.place.name}.txt"

    @property
    def _format(self) -> dict[str, Any]:
        """The arguments of the decoder."""
        crop_filter = self.source.crop_filter
        crop = None if crop_filter is None else Crop(self.size, crop_filter)
        return {"size": self.size, "num_channels": self.source.num_channels, "crop": crop}

    def run(self, *, force: bool) -> Store:
        shape = (self.source.num_channels, self.size, self.size)
        with Draft(self.place, shape=shape, key=self._key(force)) as draft:
            self.on_progress(PrepareProgress(0, 0, f"looking for images in {self.path}"))
            try:
                listing = self.source.find(self.path, work=Workspace(draft.work, self._unpacking))
            except DataError:
                if not draft.entries:
                    draft.discard()
                raise
            classes, problems = _planned(listing)
            listed = fingerprint([str(shape), *("/".join(planned.key) for planned, _ in classes)])
            if self.place.exists() and not force:
                try:
                    return self._existing(listed)
                finally:
                    draft.discard()
            self._check_disk(draft, classes)
            self._write(draft, classes)
            problems += _decoding_problems(classes, draft.entries)
            self._check_problems(problems, draft)
            index = self._index(draft.entries, problems, listed)
            draft.finish(index, _image_names(classes, draft.entries))
        self.report.unlink(missing_ok=True)
        return Store.open(self.place)

    def _unpacking(self, archive: Path, done: int, total: int) -> None:
        self.on_progress(PrepareProgress(done, total, archive=archive.name))

    def _key(self, force: bool) -> str:
        """Return everything that determines the pixels of a class, except its image names."""
        path = self.path.resolve()
        stat = path.stat() if path.is_file() else None
        content = [FORMAT, *map(str, self._format.values()), str(path), force]
        return json.dumps([*content, *([stat.st_size, stat.st_mtime_ns] if stat else [])])

    def _existing(self, listed: str) -> Store:
        store = Store.open(self.place)
        if store.index.listing != listed:
            raise DataError(
                f"{self.name} in size {self.size} was already prepared from other images, or with "
                "other options; replace it with --force, or keep both with --name."
            )
        message = f"{self.place} already has images of the same names; --force replaces it"
        num_images = store.index.shape[0]
        self.on_progress(PrepareProgress(num_images, num_images, message))
        return store

    def _check_disk(self, draft: Draft, classes: Sequence[_Class]) -> None:
        num_images = sum(len(items) for _, items in classes) - draft.num_images
        needed = num_images * self.source.num_channels * self.size**2
        free = shutil.disk_usage(draft.path).free
        if needed > free:
            raise DataError(
                f"{self.name} in size {self.size} needs {needed / 1e9:.1f} GB more in "
                f"{self.place.parent}, but only {free / 1e9:.1f} GB are free; free disk space."
            )

    def _write(self, draft: Draft, classes: Sequence[_Class]) -> None:
        """Decode the images that are missing in the draft."""
        finished = self._num_finished(draft, classes)
        draft.resume_after(finished)
        total = sum(len(items) for _, items in classes)
        done = sum(len(items) for _, items in classes[:finished])
        message = f"resuming after {finished} of {len(classes)} classes" if finished else None
        self.on_progress(PrepareProgress(done, total, message))
        rest = classes[finished:]
        results = decode_chunks(
            (items[i : i + AT_ONCE] for _, items in rest for i in range(0, len(items), AT_ONCE)),
            **self._format,
            workers=self.workers,
            total=total - done,
        )
        with contextlib.closing(results):
            for planned, items in rest:
                left_out: list[tuple[int, str]] = []
                changed: list[tuple[int, str]] = []
                for first in range(0, len(items), AT_ONCE):
                    result = next(results)
                    draft.write(result.pixels)
                    left_out += [(first + number, why) for number, why in result.left_out]
                    changed += [(first + number, how) for number, how in result.changed]
                    read = done + min(first + AT_ONCE, len(items))
                    self.on_progress(PrepareProgress(read, total))
                done += len(items)
                draft.end_class(replace(planned, left_out=left_out, changed=changed))

    def _num_finished(self, draft: Draft, classes: Sequence[_Class]) -> int:
        """Return the number of written classes that are still up to date."""
        pairs = zip(draft.entries, classes, strict=False)
        for number, (entry, (planned, items)) in enumerate(pairs):
            if entry.key != planned.key or not draft.intact(number):
                return number
            # The user may have fixed an unusable image.
            bad = [items[which] for which, _ in entry.left_out]
            with suppress_pillow_warnings():
                again = decode_all(bad, **self._format)
            if [why for _, why in again.left_out] != [why for _, why in entry.left_out]:
                return number
        return min(len(draft.entries), len(classes))

    def _check_problems(self, problems: Sequence[Problem], draft: Draft) -> None:
        """Raise if there are no images, or problems that the user did not choose to skip."""
        fatal = [printable(problem) for problem in problems if problem.fatal]
        if draft.num_images and (self.on_problem == "skip" or not fatal):
            return
        if not fatal:
            layouts = "".join(f"\n  - {layout}" for layout in self.source.layouts)
            supported = f"; supported layouts:{layouts}" if layouts else "."
            draft.discard()
            raise DataError(f"found no images of {self.name} in {self.path}{supported}")
        advice = fix_or_skip(len(fatal), usable=draft.num_images > 0)
        if len(fatal) == 1:
            raise DataError(f"{self.name} was not prepared: {fatal[0]}; {advice}.")
        self.report.parent.mkdir(parents=True, exist_ok=True)
        self.report.write_text("".join(f"{line}\n" for line in fatal), encoding="utf-8")
        shown = "".join(f"\n  - {line}" for line in fatal[:_MAX_SHOWN])
        more = f"\n  and {len(fatal) - _MAX_SHOWN} more" if fatal[_MAX_SHOWN:] else ""
        raise DataError(
            f"{self.name} was not prepared because of {len(fatal)} problems; {advice}. All are "
            f"listed in {self.report}:{shown}{more}"
        )

    def _index(self, entries: Sequence[Entry], problems: Sequence[Problem], listed: str) -> Index:
        known = SOURCES.name_of(self.source)
        firsts = accumulate((e.count for e in entries), initial=0)
        stored = [
            StoredClass(e.split, e.name, first, e.count, e.checksum)
            for e, first in zip(entries, firsts, strict=False)
            if e.count
        ]
        return Index(
            dataset=self.name,
            size=self.size,
            num_channels=self.source.num_channels,
            mean=tuple(self.source.mean),
            std=tuple(self.source.std),
            classes=stored,
            left_out=[printable(problem) for problem in problems if problem.fatal],
            changed=[printable(problem) for problem in problems if not problem.fatal],
            listing=listed,
            source=known if known in SOURCES and known != self.name else "",
        )


def _planned(listing: Listing) -> tuple[list[_Class], list[Problem]]:
    """Return all classes with images, in a fixed order, and the problems of the listing."""
    problems = list(listing.problems)
    known = {problem.where for problem in problems}
    classes: list[_Class] = []
    for split in SPLITS:
        for name, items in listing.classes.get(split, {}).items():
            if items:
                names = fingerprint(item.name for item in items)
                classes.append((Entry(split, name, names), items))
            elif not known & {name, f"{split}/{name}"}:
                problems.append(Problem(f"{split}/{name}", "the class has no images"))
    return classes, problems


def _decoding_problems(classes: Sequence[_Class], entries: Sequence[Entry]) -> list[Problem]:
    """Return the problems and conversions of the decoder, in the order of the images."""
    found = []
    for (_, items), entry in zip(classes, entries, strict=True):
        found += [Problem(items[n].name, why) for n, why in entry.left_out]
        found += [Problem(items[n].name, how, fatal=False) for n, how in entry.changed]
        if not entry.count:
            what = f"none of the {len(items)} images of the class can be used"
            found.append(Problem(f"{entry.split}/{entry.name}", what))
    return found


def _image_names(classes: Sequence[_Class], entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the names of the written images, in their order."""
    for (_, items), entry in zip(classes, entries, strict=True):
        bad = {number for number, _ in entry.left_out}
        yield from (printable(item.name) for n, item in enumerate(items) if n not in bad)
