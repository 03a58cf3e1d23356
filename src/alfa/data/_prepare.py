"""From the files of a dataset to a store: every image is decoded once, on all cores."""

from __future__ import annotations

import contextlib
import errno
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from alfa._runtime import usable_cpus
from alfa.data._base import SPLITS, Split
from alfa.data._draft import Draft, Entry
from alfa.data._open import store_path
from alfa.data._store import FORMAT, Index, Store, StoredClass, fingerprint
from alfa.data._workers import AT_ONCE, decode_all, decode_chunks, suppress_pillow_warnings
from alfa.data.photos import printable, skip_advice
from alfa.data.sources import SOURCES, Item, Listing, Problem, Source, Workspace
from alfa.errors import ConfigError, DataError, check_choice

# Problems that an error names; all of them are in the report.
_SHOWN = 20


@dataclass(frozen=True)
class PrepareProgress:
    """The progress of `prepare`.

    Attributes:
        done: images that are decoded and written, or bytes of `archive` that are read.
        total: images of the dataset, or bytes; 0 while images are searched.
        message: for the user.
        archive: that is being unpacked.
    """

    done: int
    total: int
    message: str | None = None
    archive: str | None = None


@dataclass(frozen=True)
class _Class:
    """A class that was found, before its images are read."""

    split: Split
    name: str
    items: Sequence[Item]
    listing: str

    def chunks(self) -> list[Sequence[Item]]:
        starts = range(0, len(self.items), AT_ONCE)
        return [self.items[start : start + AT_ONCE] for start in starts]


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

    A killed run is resumed, class by class, with the same result. The result does not depend on
    the number of workers.

    Args:
        source: the dataset.
        path: its folder or archive, in one of the source's layouts.
        root: the folder of all prepared datasets.
        size: the side of the images; by default the source's.
        name: of the prepared dataset; by default the source's name.
        on_problem: ``"stop"`` lists all images and classes that cannot be used and writes no
            store; ``"skip"`` leaves them out.
        workers: threads or processes that decode; by default one for every processor.
        force: replace a store that exists.
        on_progress: is called with the progress.

    Raises:
        DataError: there are no images, some cannot be used, or the disk is full.
    """
    check_choice("on_problem", on_problem, ("stop", "skip"))
    name, size = name or SOURCES.name_of(source), source.size if size is None else size
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise ConfigError(
            f"`name` is {name!r}, but may have letters, digits, '-', '_', '+' and '.' only."
        )
    if size < 1:
        raise ConfigError(f"`size` is {size}, but must be at least 1.")
    job = _Job(source, path, root, size, name, on_problem, workers or usable_cpus(), on_progress)
    try:
        return job.run(force=force)
    except OSError as error:
        room = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "; make room, and run it again: it goes on from there" if room else ""
        raise DataError(
            f"{name} could not be prepared: {error.strerror or error} "
            f"({error.filename or job.place.parent}){advice}."
        ) from error


@dataclass(frozen=True)
class _Job:
    """One call of `prepare`."""

    source: Source
    path: Path
    root: Path
    size: int
    name: str
    on_problem: str
    workers: int
    on_progress: Callable[[PrepareProgress], None]

    @property
    def place(self) -> Path:
        return store_path(self.name, self.size, root=self.root)

    @property
    def report(self) -> Path:
        return self.root / "reports" / f"{self.place.name}.txt"

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
            names = (f"{c.split}/{c.name}/{c.listing}" for c in classes)
            listed = fingerprint([str(shape), *names])
            if self.place.exists() and not force:
                try:
                    return self._existing(listed)
                finally:
                    draft.discard()
            self._check_room(draft, classes)
            self._write(draft, classes)
            problems += _problems(classes, draft.entries)
            self._check_problems(problems, draft)
            items = _names(classes, draft.entries)
            draft.finish(self._index(classes, draft.entries, problems, listed), items)
        self.report.unlink(missing_ok=True)
        return Store.open(self.place)

    def _unpacking(self, archive: Path, done: int, total: int) -> None:
        self.on_progress(PrepareProgress(done, total, archive=archive.name))

    def _key(self, force: bool) -> str:
        """Whatever decides which pixels a class gets, but for the names of its images."""
        path = self.path.resolve()
        stat = path.stat() if path.is_file() else None
        content = [FORMAT, self.source.num_channels, self.size, str(path), force]
        return json.dumps([*content, *([stat.st_size, stat.st_mtime_ns] if stat else [])])

    def _existing(self, listed: str) -> Store:
        store = Store.open(self.place)
        if store.index.listing != listed:
            raise DataError(
                f"{self.name} in size {self.size} is prepared already, but from other images than "
                f"those in {self.path}, or with other options; make it anew with --force, or keep "
                "both with --name."
            )
        message = (
            f"{self.place} is there already, with images of the same names; nothing was done, and "
            "--force makes it anew"
        )
        num_images = store.index.shape[0]
        self.on_progress(PrepareProgress(num_images, num_images, message))
        return store

    def _check_room(self, draft: Draft, classes: Sequence[_Class]) -> None:
        num_images = sum(len(c.items) for c in classes) - draft.num_images
        needed = num_images * self.source.num_channels * self.size**2
        free = shutil.disk_usage(draft.path).free
        if needed > free:
            raise DataError(
                f"{self.name} in size {self.size} needs {needed / 1e9:.1f} GB more under "
                f"{self.root}, but {free / 1e9:.1f} GB are free; make room, or choose another disk."
            )

    def _write(self, draft: Draft, classes: Sequence[_Class]) -> None:
        """Decode what the draft does not have yet."""
        finished = self._num_finished(draft, classes)
        draft.resume_after(finished)
        total = sum(len(c.items) for c in classes)
        done = sum(len(c.items) for c in classes[:finished])
        message = f"going on after {finished} of {len(classes)} classes" if finished else None
        self.on_progress(PrepareProgress(done, total, message))
        rest = classes[finished:]
        results = decode_chunks(
            (chunk for planned in rest for chunk in planned.chunks()),
            size=self.size,
            num_channels=self.source.num_channels,
            workers=self.workers,
            total=total - done,
        )
        with contextlib.closing(results):
            for planned in rest:
                left_out: list[tuple[int, str]] = []
                changed: list[tuple[int, str]] = []
                first = 0
                for chunk in planned.chunks():
                    result = next(results)
                    draft.write(result.pixels)
                    left_out += [(first + number, why) for number, why in result.left_out]
                    changed += [(first + number, how) for number, how in result.changed]
                    first, done = first + len(chunk), done + len(chunk)
                    self.on_progress(PrepareProgress(done, total))
                entry = Entry(planned.split, planned.name, planned.listing)
                draft.end_class(replace(entry, left_out=left_out, changed=changed))

    def _num_finished(self, draft: Draft, classes: Sequence[_Class]) -> int:
        """How many of the written classes are still what would be written."""
        for number, (entry, planned) in enumerate(zip(draft.entries, classes, strict=False)):
            same = (entry.split, entry.name) == (planned.split, planned.name)
            if not same or entry.listing != planned.listing or not draft.intact(number):
                return number
            # An image that was bad may have been put right in the meantime.
            bad = [planned.items[which] for which, _ in entry.left_out]
            with suppress_pillow_warnings():
                again = decode_all(bad, size=self.size, num_channels=self.source.num_channels)
            if [why for _, why in again.left_out] != [why for _, why in entry.left_out]:
                return number
        return min(len(draft.entries), len(classes))

    def _check_problems(self, problems: Sequence[Problem], draft: Draft) -> None:
        """Raise if there are no images, or problems that the user does not want to skip."""
        fatal = [printable(problem) for problem in problems if problem.fatal]
        if draft.num_images and (self.on_problem == "skip" or not fatal):
            return
        if not fatal:
            layouts = "".join(f"\n  - {layout}" for layout in self.source.layouts)
            known = f"; known are:{layouts}" if layouts else "."
            draft.discard()
            raise DataError(f"there are no images of {self.name} in {self.path}{known}")
        advice = skip_advice(len(fatal), usable=draft.num_images > 0)
        if len(fatal) == 1:
            raise DataError(f"{self.name} was not prepared: {fatal[0]}; {advice}.")
        self.report.parent.mkdir(parents=True, exist_ok=True)
        self.report.write_text("".join(f"{line}\n" for line in fatal), encoding="utf-8")
        shown = "".join(f"\n  - {line}" for line in fatal[:_SHOWN])
        more = f"\n  and {len(fatal) - _SHOWN} more" if fatal[_SHOWN:] else ""
        raise DataError(
            f"{self.name} was not prepared, it has {len(fatal)} problems; {advice}. All are listed "
            f"in {self.report}:{shown}{more}"
        )

    def _index(
        self,
        classes: Sequence[_Class],
        entries: Sequence[Entry],
        problems: Sequence[Problem],
        listed: str,
    ) -> Index:
        known = SOURCES.name_of(self.source)
        stored, first = [], 0
        for entry in entries:
            if entry.count:
                place = (entry.split, entry.name, first, entry.count, entry.checksum)
                stored.append(StoredClass(*place))
            first += entry.count
        changed = [printable(problem) for problem in problems if not problem.fatal]
        for planned, entry in zip(classes, entries, strict=True):
            changed += [f"{printable(planned.items[n].name)}: {how}" for n, how in entry.changed]
        return Index(
            dataset=self.name,
            size=self.size,
            num_channels=self.source.num_channels,
            mean=tuple(self.source.mean),
            std=tuple(self.source.std),
            classes=stored,
            left_out=[printable(problem) for problem in problems if problem.fatal],
            changed=changed,
            listing=listed,
            source=known if known in SOURCES and known != self.name else "",
        )


def _planned(listing: Listing) -> tuple[list[_Class], list[Problem]]:
    """All classes that have images, in a fixed order, and what is wrong so far."""
    problems = list(listing.problems)
    known = {problem.where for problem in problems}
    classes = []
    for split in SPLITS:
        for name, items in listing.classes.get(split, {}).items():
            if items:
                names = fingerprint(item.name for item in items)
                classes.append(_Class(split, name, items, names))
            elif not known & {name, f"{split}/{name}"}:
                problems.append(Problem(f"{split}/{name}", "the class has no images"))
    return classes, problems


def _problems(classes: Sequence[_Class], entries: Sequence[Entry]) -> list[Problem]:
    """What decoding has found, in the order of the images."""
    found = []
    for planned, entry in zip(classes, entries, strict=True):
        for number, why in entry.left_out:
            found.append(Problem(planned.items[number].name, why))
        if not entry.count:
            where, num = f"{planned.split}/{planned.name}", len(planned.items)
            found.append(Problem(where, f"none of the {num} images of the class can be used"))
    return found


def _names(classes: Sequence[_Class], entries: Sequence[Entry]) -> Iterator[str]:
    """The names of the images that are written, in their order."""
    for planned, entry in zip(classes, entries, strict=True):
        bad = {number for number, _ in entry.left_out}
        yield from (printable(item.name) for n, item in enumerate(planned.items) if n not in bad)
