"""A user's own photos: a support set in class folders, and images to classify."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from alfa.data._decode import read_image_file, thumbnail
from alfa.data._image_format import ImageFormat
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

# Camera formats that Pillow does not support.
_CAMERA_SUFFIXES = (*(".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".raf", ".rw2", ".raw"),)
_UNSUPPORTED = "is a photo in an unsupported format; save it as JPEG or PNG"
# Control characters, line ends, and surrogates, which stand for bytes that are not text.
_UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")


@dataclass(frozen=True)
class PhotoFile:
    """An image file; its label is the top-level folder below the user's folder, if any."""

    path: Path
    label: str | None = None

    @property
    def name(self) -> str:
        """The path in printable characters."""
        return printable(self.path)


@dataclass(frozen=True)
class PhotoListing:
    """Image files that have not been read yet; files with classes are a support set."""

    files: list[PhotoFile]
    problems: list[Problem]
    has_classes: bool = False

    def note(self, where: object, what: str, *, fatal: bool = False) -> None:
        self.problems.append(Problem(printable(where), what, fatal))


@dataclass(frozen=True)
class Photos:
    """Images that were read."""

    files: Sequence[PhotoFile]
    pixels: np.ndarray  # the inputs of a model, uint8 [image, height, width, channel]
    thumbnails: Sequence[bytes] = ()  # small PNG or JPEG files, if they were requested
    problems: Sequence[Problem] = ()  # with these images and with unusable ones

    @property
    def labels(self) -> list[str]:
        """The labels of a support set, one for each image."""
        return [file.label for file in self.files if file.label is not None]


def printable(name: object) -> str:
    """Return a name or path as one line that any terminal and file can show."""
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in _UNPRINTABLE else c
        for c in str(name)
    )


def list_support_photos(folder: Path) -> PhotoListing:
    """List the images in a folder of class folders, at any depth below the class folders."""
    if not folder.is_dir():
        raise DataError(f"{printable(folder)} is not a folder; pass a folder of class folders.")
    listing = PhotoListing([], [], has_classes=True)
    for label, sub in subfolders(folder).items():
        first = len(listing.files)
        _add_tree(sub, label, listing)
        files = listing.files[first:]
        if not files:
            listing.note(sub, "the class has no images", fatal=True)
        parts = {file.path.relative_to(sub).parts[0] for file in files}
        inner = [printable(name) for name, path in subfolders(sub).items() if path.name in parts]
        if len(inner) > 1 and not any(file.path.parent == sub for file in files):
            listing.note(sub, f"all images of this class are in subfolders: {shorten_list(inner)}")
    if not listing.files:
        photos = (f" ({problem})" for problem in listing.problems if problem.what == _UNSUPPORTED)
        raise DataError(
            f"{printable(folder)} has no class folders with images; create a folder in it for each "
            f"class, named after the class, and put the images there{next(photos, '')}."
        )
    labels = sorted({str(file.label) for file in listing.files})
    if len(labels) > 1 and all(map(split_of_folder, labels)):
        raise DataError(
            f"{printable(folder)} has the folders {shorten_list(labels)}, which are splits of a "
            "dataset, not classes; pass one of them, with a folder for each class."
        )
    loose = [printable(name) for name in list_files(folder) if is_image(name)]
    if loose:
        listing.note(folder, f"skipped images outside the class folders: {shorten_list(loose)}")
    return listing


def list_photos(paths: Iterable[Path]) -> PhotoListing:
    """List the images at some paths: image files, and folders with images at any depth."""
    listing = PhotoListing([], [])
    for path in dict.fromkeys(paths):
        if path.is_file():
            listing.files.append(PhotoFile(path))
            continue
        if not path.is_dir():
            raise DataError(f"there is no file or folder {printable(path)}.")
        _add_folder(path, None, listing)
        for name, sub in subfolders(path).items():
            _add_tree(sub, name, listing)
    unique: dict[Path, PhotoFile] = {}
    for file in listing.files:
        # List an image only once, with its label if a folder gives one.
        if file.path not in unique or file.label is not None:
            unique[file.path] = file
    if not unique:
        raise DataError(f"there are no images in {shorten_list(list(map(printable, paths)))}.")
    return PhotoListing(list(unique.values()), listing.problems)


def load_photos(
    listed: PhotoListing,
    *,
    image_format: ImageFormat,
    side: int | None = None,
    most: int | None = None,
    on_read: Callable[[], None] = lambda: None,
) -> Photos:
    """Load images in the format of a model, and report unusable ones as problems.

    `side` is the side of thumbnails, None for no thumbnails. `most` limits the thumbnails for each
    class, or in total without classes; the others are empty. `on_read` is called after each image.
    """
    good: list[PhotoFile] = []
    pixels: list[np.ndarray] = []
    thumbnails: list[bytes] = []
    problems = list(listed.problems)
    changed: dict[str, list[str]] = {}
    num_thumbnails: Counter[str | None] = Counter()
    with suppress_pillow_warnings():
        for file in listed.files:
            label = file.label if listed.has_classes else None
            try:
                content = read_photo(file.path)
                found, changes = image_format.decode(content)
                if side is not None:
                    wanted = most is None or num_thumbnails[label] < most
                    thumbnails.append(thumbnail(content, side=side) if wanted else b"")
                    num_thumbnails[label] += 1
            except DataError as error:
                problems.append(Problem(file.name, printable(error)))
            else:
                good.append(file)
                pixels.append(found.transpose(1, 2, 0))
                for change in changes:
                    changed.setdefault(change, []).append(file.name)
            on_read()
    if listed.has_classes:
        usable = {file.label for file in good}
        for label in dict.fromkeys(file.label for file in listed.files):
            if label not in usable:
                what = "none of the images of this class can be used"
                problems.append(Problem(printable(label), what))
    for change, (first, *others) in changed.items():
        more = f" (also for {len(others):,} more)" if others else ""
        problems.append(Problem(first, f"{change}{more}", fatal=False))
    num_channels, height, width = image_format.shape
    stacked = np.stack(pixels) if pixels else np.empty((0, height, width, num_channels), np.uint8)
    return Photos(good, stacked, thumbnails, problems)


def read_photo(path: Path) -> bytes:
    """Read an image file, or raise a DataError whose message does not name it."""
    try:
        return read_image_file(path)
    # An invalid file name raises a ValueError.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot be read ({reason})") from None


def check_photos(*groups: Photos, on_problem: str) -> None:
    """Raise a DataError if a group has no image, or if there are problems that are not skipped."""
    check_choice("--on-problem", on_problem, ("stop", "skip"))
    fatal = [str(problem) for group in groups for problem in group.problems if problem.fatal]
    enough = all(len(group.files) for group in groups)
    if not fatal or (on_problem == "skip" and enough):
        return
    advice = fix_or_skip(len(fatal), usable=enough)
    if len(fatal) == 1:
        raise DataError(f"{fatal[0]}; {advice}.")
    listed = "".join(f"\n  - {line}" for line in fatal)
    raise DataError(f"nothing was written because of {len(fatal)} problems; {advice}:{listed}")


def fix_or_skip(num_problems: int, *, usable: bool) -> str:
    """Return advice after problems with images; `usable` means that other images can be used."""
    them = "it" if num_problems == 1 else "them"
    return (
        f"fix {them}, or skip {them} with `--on-problem skip`" if usable else "no image is usable"
    )


def check_num_classes(support: Photos, folder: Path) -> None:
    """Raise a DataError if a support set from `folder` has only one class."""
    classes = sorted(set(support.labels))
    if len(classes) < 2:
        raise DataError(
            f"{printable(folder)} has only the class {printable(classes[0])}, but at least 2 are "
            "required; pass the folder that contains the folders of all classes."
        )


def _add_tree(
    folder: Path, label: str | None, listing: PhotoListing, above: Sequence[Path] = ()
) -> None:
    """Add the images of a folder and of all folders in it to a listing."""
    here = folder.resolve()
    # A link may point to a folder above it.
    if here not in above:
        _add_folder(folder, label, listing)
        for sub in subfolders(folder).values():
            _add_tree(sub, label, listing, (*above, here))


def _add_folder(folder: Path, label: str | None, listing: PhotoListing) -> None:
    others = []
    for name, path in list_files(folder).items():
        if name.lower().endswith(_CAMERA_SUFFIXES):
            listing.note(path, _UNSUPPORTED, fatal=True)
        elif not is_image(name):
            others.append(printable(name))
        elif path.is_file():
            listing.files.append(PhotoFile(path, label))
        else:
            listing.note(path, "is neither a file nor a link to an existing file", fatal=True)
    if others:
        listing.note(folder, f"skipped files that are not images: {shorten_list(others)}")
