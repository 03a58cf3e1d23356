"""A user's own photos: a support set in class folders, and images to classify."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from alfa.data._decode import decode, read_image_file, thumbnail
from alfa.data._workers import suppress_pillow_warnings
from alfa.data.sources import (
    Problem,
    is_image,
    list_files,
    shorten_list,
    split_of_folder,
    subfolders,
)
from alfa.errors import DataError, check_choice

# Camera formats that Pillow does not read.
_CAMERA_SUFFIXES = (
    *(".heic", ".heif", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".raf", ".rw2", ".raw"),
)
_NOT_READ = "is a photo in a format that is not read; save it as JPEG or PNG"
# Characters that command a terminal, end a line, or stand for bytes that are no text.
_UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")


@dataclass(frozen=True)
class PhotoFile:
    """An image file; its label is the folder right below the one that the user gave, if any."""

    path: Path
    label: str | None = None

    @property
    def name(self) -> str:
        """The path in printable characters."""
        return printable(self.path)


@dataclass(frozen=True)
class PhotoListing:
    """Image files that have not been read yet; those with classes are a support set."""

    files: Sequence[PhotoFile]
    problems: Sequence[Problem] = ()
    has_classes: bool = False


@dataclass(frozen=True)
class Photos:
    """Images that were read.

    Attributes:
        files: the files that they come from.
        pixels: uint8 ``[image, height, width, channel]``, as a model takes them.
        thumbnails: a small PNG or JPEG file for each image; empty if none was requested.
        problems: with these images, and with others that could not be read.
    """

    files: Sequence[PhotoFile]
    pixels: np.ndarray
    thumbnails: Sequence[bytes] = ()
    problems: Sequence[Problem] = field(default_factory=tuple)

    @property
    def labels(self) -> list[str]:
        """The labels of a support set, in which every image has one."""
        return [file.label for file in self.files if file.label is not None]


def printable(name: object) -> str:
    """A name or path as one line that any terminal and any file can show."""
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in _UNPRINTABLE else c
        for c in str(name)
    )


def list_support_photos(folder: Path) -> PhotoListing:
    """The images of a folder of class folders; a class has all images anywhere below its folder.

    Raises:
        DataError: there are no class folders, or no images in any of them, or they are the splits
            of a dataset.
    """
    if not folder.is_dir():
        raise DataError(f"{printable(folder)} is not a folder; give one of class folders.")
    files: list[PhotoFile] = []
    problems: list[Problem] = []
    for label, sub in subfolders(folder).items():
        listed = _join(_walk(sub, label))
        files += listed.files
        problems += listed.problems
        if not listed.files:
            problems.append(Problem(printable(sub), "the class has no images"))
        deeper = {file.path.relative_to(sub).parts[0] for file in listed.files}
        inner = [printable(name) for name, path in subfolders(sub).items() if path.name in deeper]
        if len(inner) > 1 and not any(file.path.parent == sub for file in listed.files):
            what = f"all images of this class lie in its folders {shorten_list(inner)}"
            problems.append(Problem(printable(sub), what, fatal=False))
    if not files:
        unread = next((f" ({problem})" for problem in problems if problem.what == _NOT_READ), "")
        raise DataError(
            f"{printable(folder)} has no class folders with images; make a folder for each class "
            f"in it, which is called as the class is, and put its images there{unread}."
        )
    labels = sorted({str(file.label) for file in files})
    if len(labels) > 1 and all(map(split_of_folder, labels)):
        raise DataError(
            f"{printable(folder)} has the folders {shorten_list(labels)}, which are parts of a "
            "dataset and no classes; give one of them, with a folder for each class."
        )
    loose = [printable(name) for name in list_files(folder) if is_image(name)]
    if loose:
        what = f"images beside the class folders have no class; left out: {shorten_list(loose)}"
        problems.append(Problem(printable(folder), what, fatal=False))
    return PhotoListing(files, problems, has_classes=True)


def list_photos(paths: Iterable[Path]) -> PhotoListing:
    """The images at some paths, each an image file or a folder with any folders below.

    Raises:
        DataError: there is nothing at a path, or there are no images at all.
    """
    listings: list[PhotoListing] = []
    for path in dict.fromkeys(paths):
        if path.is_file():
            listings.append(PhotoListing([PhotoFile(path)]))
            continue
        if not path.is_dir():
            raise DataError(f"there is no file or folder {printable(path)}.")
        listings.append(_list_folder(path, None))
        for name, sub in subfolders(path).items():
            listings += _walk(sub, name)
    found = _join(listings)
    unique: dict[Path, PhotoFile] = {}
    for file in found.files:
        # An image that was named twice is classified once; a folder tells its label.
        if file.path not in unique or file.label is not None:
            unique[file.path] = file
    if not unique:
        raise DataError(f"there are no images in {shorten_list(list(map(printable, paths)))}.")
    return PhotoListing(list(unique.values()), found.problems)


def load_photos(
    listed: PhotoListing,
    *,
    shape: Sequence[int],
    side: int | None = None,
    most: int | None = None,
    on_read: Callable[[], None] = lambda: None,
) -> Photos:
    """Load images; those that cannot be used are reported as problems.

    Args:
        listed: the image files.
        shape: of a model's input, channel, height and width.
        side: of thumbnails; None for none.
        most: thumbnails to make, from the first image on, for each class if there are classes;
            the others are empty. None for all.
        on_read: is called after each image.
    """
    num_channels, height, width = shape
    good: list[PhotoFile] = []
    pixels: list[np.ndarray] = []
    thumbnails: list[bytes] = []
    problems = list(listed.problems)
    changed: dict[str, list[str]] = {}
    made: Counter[str | None] = Counter()
    with suppress_pillow_warnings():
        for file in listed.files:
            of = file.label if listed.has_classes else None
            try:
                content = read_photo(file.path)
                found, changes = decode(content, size=(height, width), num_channels=num_channels)
                if side is not None:
                    wanted = most is None or made[of] < most
                    thumbnails.append(thumbnail(content, side=side) if wanted else b"")
                    made[of] += 1
            except DataError as error:
                problems.append(Problem(file.name, printable(error)))
            else:
                good.append(file)
                pixels.append(found.transpose(1, 2, 0))
                for change in changes:
                    changed.setdefault(change, []).append(file.name)
            on_read()
    if listed.has_classes:
        problems += _emptied_classes(listed.files, good)
    for change, (first, *others) in changed.items():
        more = f"; so with {len(others):,} more" if others else ""
        problems.append(Problem(first, f"{change}{more}", fatal=False))
    stacked = np.stack(pixels) if pixels else np.empty((0, height, width, num_channels), np.uint8)
    return Photos(good, stacked, thumbnails, problems)


def _emptied_classes(files: Sequence[PhotoFile], good: Sequence[PhotoFile]) -> list[Problem]:
    left = {file.label for file in good}
    labels = dict.fromkeys(file.label for file in files if file.label is not None)
    what = "none of the images of this class can be used"
    return [Problem(printable(label), what) for label in labels if label not in left]


def read_photo(path: Path) -> bytes:
    """The content of an image file.

    Raises:
        DataError: it cannot be read; the text says why, without its name.
    """
    try:
        return read_image_file(path)
    # A name with a character that no system takes is a ValueError.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot be read ({reason})") from None


def check_photos(*groups: Photos, on_problem: str) -> None:
    """Raise a DataError if some images cannot be used, unless they are to be skipped.

    Args:
        groups: images, of which each group needs at least one.
        on_problem: ``"stop"`` names all that cannot be used; ``"skip"`` leaves them out.
    """
    check_choice("--on-problem", on_problem, ("stop", "skip"))
    fatal = [str(problem) for group in groups for problem in group.problems if problem.fatal]
    enough = all(len(group.files) for group in groups)
    if not fatal or (on_problem == "skip" and enough):
        return
    advice = skip_advice(len(fatal), usable=enough)
    if len(fatal) == 1:
        raise DataError(f"{fatal[0]}; {advice}.")
    listed = "".join(f"\n  - {line}" for line in fatal)
    raise DataError(f"nothing was written, there are {len(fatal)} problems; {advice}:{listed}")


def skip_advice(num_problems: int, *, usable: bool) -> str:
    """How to go on after problems with images, of which some are `usable`, or none."""
    them = "it" if num_problems == 1 else "them"
    if usable:
        return f"put {them} right, or leave {them} out with `--on-problem skip`"
    return "no image is left that could be used"


def check_num_classes(support: Photos, folder: Path) -> None:
    """Raise a DataError if a support set, read from a folder, has only one class."""
    classes = sorted(set(support.labels))
    if len(classes) < 2:
        raise DataError(
            f"{printable(folder)} has the one class {printable(classes[0])}, but 2 or more are "
            "needed; give the folder in which the folders of all classes lie."
        )


def _join(listings: Iterable[PhotoListing]) -> PhotoListing:
    files: list[PhotoFile] = []
    problems: list[Problem] = []
    for listed in listings:
        files += listed.files
        problems += listed.problems
    return PhotoListing(files, problems)


def _walk(
    folder: Path, label: str | None, above: Sequence[tuple[int, int]] = ()
) -> Iterator[PhotoListing]:
    """The images of a folder and of all folders in it, one listing for each folder."""
    status = os.stat(folder)
    here = (status.st_dev, status.st_ino)
    # A link may lead to a folder around it.
    if here not in above:
        yield _list_folder(folder, label)
        for sub in subfolders(folder).values():
            yield from _walk(sub, label, (*above, here))


def _list_folder(folder: Path, label: str | None) -> PhotoListing:
    files, problems, unread, others = [], [], [], []
    for name, path in list_files(folder).items():
        if name.lower().endswith(_CAMERA_SUFFIXES):
            unread.append(Problem(printable(folder / name), _NOT_READ))
        elif not is_image(name):
            others.append(printable(name))
        elif path.is_file():
            files.append(PhotoFile(path, label))
        else:
            what = "is not a file, or a link to one that is not there"
            problems.append(Problem(printable(path), what))
    problems += unread
    if others:
        what = f"what is no image is left out: {shorten_list(others)}"
        problems.append(Problem(printable(folder), what, fatal=False))
    return PhotoListing(files, problems)
