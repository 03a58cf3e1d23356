"""Image files of one's own: a support set in class folders, and what is to be classified."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from alfa.data._decode import decode, read_image, thumbnail
from alfa.data._workers import quiet_pillow
from alfa.data.sources._base import Problem
from alfa.data.sources._folders import files, is_image, shortened, split_named, subfolders
from alfa.errors import DataError, check_choice

# Photos as cameras make them, which Pillow does not read.
_UNREAD = (".heic", ".heif", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".raf", ".rw2", ".raw")
_NOT_READ = "is a photo in a format that is not read; save it as JPEG or PNG"
# Characters that command a terminal, end a line, or stand for bytes that are no text.
_UNSHOWN = ("Cc", "Cs", "Zl", "Zp")


@dataclass(frozen=True)
class Picture:
    """An image file.

    Attributes:
        path: below the folder that the user named, as the user named it.
        label: the folder that it lies in, of those right below that one; None where it lies in none
            of them.
    """

    path: Path
    label: str | None = None

    @property
    def name(self) -> str:
        """For people to read."""
        return plain(str(self.path))


@dataclass(frozen=True)
class Listed:
    """Image files, none of them read yet.

    Attributes:
        pictures: the files.
        problems: what was wrong already.
        has_classes: they are a support set, so that a label without images is a problem.
    """

    pictures: Sequence[Picture]
    problems: Sequence[Problem] = ()
    has_classes: bool = False


@dataclass(frozen=True)
class Pictures:
    """Images that were read.

    Attributes:
        files: where they come from.
        pixels: as a model takes them, uint8 ``[image, height, width, channel]``.
        thumbnails: small PNG or JPEG files, one for each, where they were asked for; nothing in
            place of those that were not.
        problems: with these images, and with others that are not among them.
    """

    files: Sequence[Picture]
    pixels: np.ndarray
    thumbnails: Sequence[bytes] = ()
    problems: Sequence[Problem] = field(default_factory=tuple)

    @property
    def labels(self) -> list[str]:
        """The folders that they lie in; of a support set, which has one for each."""
        return [file.label for file in self.files if file.label is not None]


def plain(name: str) -> str:
    """A name as one line that any terminal and any file can show."""
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in _UNSHOWN else c
        for c in name
    )


def support_in(folder: Path) -> Listed:
    """The images of a folder of class folders, each class with all that lie anywhere in its folder.

    Raises:
        DataError: there are no class folders, or no images in any of them, or they are the parts
            of a dataset.
    """
    if not folder.is_dir():
        raise DataError(f"{plain(str(folder))} is not a folder; give one of class folders.")
    pictures: list[Picture] = []
    problems: list[Problem] = []
    for label, sub in subfolders(folder).items():
        listed = _below(sub, label)
        pictures += listed.pictures
        problems += listed.problems
        if not listed.pictures:
            problems.append(Problem(plain(str(sub)), "the class has no images"))
        inner = [name for name, deeper in subfolders(sub).items() if _below(deeper, name).pictures]
        if len(inner) > 1 and not _in(sub, label).pictures:
            what = (
                f"all images of this class lie in its folders {shortened(list(map(plain, inner)))}"
            )
            problems.append(Problem(plain(str(sub)), what, fatal=False))
    if not pictures:
        unread = next((str(problem) for problem in problems if _NOT_READ in str(problem)), None)
        raise DataError(
            f"{plain(str(folder))} has no class folders with images; make a folder for each class "
            "in it, which is called as the class is, and put its images there"
            f"{'' if unread is None else f' ({unread})'}."
        )
    found = {picture.label for picture in pictures}
    if len(found) > 1 and all(split_named(str(name)) for name in found):
        raise DataError(
            f"{plain(str(folder))} has the folders {shortened(sorted(map(str, found)))}, which are "
            "parts of a dataset and no classes; give one of them, with a folder for each class."
        )
    loose = [plain(name) for name in files(folder) if is_image(name)]
    if loose:
        what = f"images beside the class folders have no class; left out: {shortened(loose)}"
        problems.append(Problem(plain(str(folder)), what, fatal=False))
    return Listed(pictures, problems, has_classes=True)


def pictures_in(paths: Iterable[Path]) -> Listed:
    """The images at some paths, each of them an image file or a folder with any folders below.

    Raises:
        DataError: there is nothing at a path, or there are no images at all.
    """
    pictures: list[Picture] = []
    problems: list[Problem] = []
    for path in dict.fromkeys(paths):
        if path.is_file():
            pictures.append(Picture(path))
            continue
        if not path.is_dir():
            raise DataError(f"there is no file or folder {plain(str(path))}.")
        found = [_in(path, None), *(_below(sub, name) for name, sub in subfolders(path).items())]
        for listed in found:
            pictures += listed.pictures
            problems += listed.problems
    unique: dict[Path, Picture] = {}
    for picture in pictures:
        # One that was named twice is classified once, and a folder says more than the file alone.
        if picture.path not in unique or picture.label is not None:
            unique[picture.path] = picture
    if not unique:
        listed_paths = shortened([plain(str(path)) for path in paths])
        raise DataError(f"there are no images in {listed_paths}.")
    return Listed(list(unique.values()), problems)


def read(
    listed: Listed,
    *,
    shape: Sequence[int],
    side: int | None = None,
    most: int | None = None,
    on_read: Callable[[], None] = lambda: None,
) -> Pictures:
    """Read images; those that cannot be used are problems.

    Args:
        listed: the image files.
        shape: of a model's input, channel, height and width.
        side: of thumbnails; None for none.
        most: thumbnails to make, from the first image on, of each class where there are classes;
            None for all.
        on_read: is called after each.
    """
    num_channels, height, width = shape
    good: list[Picture] = []
    pixels: list[np.ndarray] = []
    thumbnails: list[bytes] = []
    problems = list(listed.problems)
    changed: dict[str, list[str]] = {}
    made: Counter[str | None] = Counter()
    with quiet_pillow():
        for picture in listed.pictures:
            of = picture.label if listed.has_classes else None
            try:
                content = contents(picture.path)
                found, changes = decode(content, size=(height, width), num_channels=num_channels)
                if side is not None:
                    wanted = most is None or made[of] < most
                    thumbnails.append(thumbnail(content, side=side) if wanted else b"")
                    made[of] += 1
            except DataError as error:
                problems.append(Problem(picture.name, plain(str(error))))
            else:
                good.append(picture)
                pixels.append(found.transpose(1, 2, 0))
                for change in changes:
                    changed.setdefault(change, []).append(picture.name)
            on_read()
    if listed.has_classes:
        problems += _emptied(listed.pictures, good)
    for change, (first, *others) in changed.items():
        more = f"; so with {len(others):,} more" if others else ""
        problems.append(Problem(first, f"{change}{more}", fatal=False))
    stacked = np.stack(pixels) if pixels else np.empty((0, height, width, num_channels), np.uint8)
    return Pictures(good, stacked, thumbnails, problems)


def _emptied(pictures: Sequence[Picture], good: Sequence[Picture]) -> list[Problem]:
    """Classes of which nothing is left."""
    left = {picture.label for picture in good}
    labels = [label for picture in pictures if (label := picture.label) is not None]
    what = "none of the images of this class can be used"
    return [Problem(plain(label), what) for label in dict.fromkeys(labels) if label not in left]


def contents(path: Path) -> bytes:
    """The content of an image file.

    Raises:
        DataError: it cannot be read; the text says why, without its name.
    """
    try:
        return read_image(path)
    # A name with a character that no system takes is a ValueError.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot be read ({reason})") from None


def judge(*groups: Pictures, on_problem: str) -> None:
    """Refuse images of which some cannot be used, unless they are to be left out.

    Args:
        groups: images that are needed; of each at least one.
        on_problem: ``"stop"`` names all that cannot be used; ``"skip"`` leaves them out.

    Raises:
        DataError: says which cannot be used.
    """
    check_choice("--on-problem", on_problem, ("stop", "skip"))
    fatal = [str(problem) for group in groups for problem in group.problems if problem.fatal]
    enough = all(len(group.files) for group in groups)
    if not fatal or (on_problem == "skip" and enough):
        return
    them = "it" if len(fatal) == 1 else "them"
    advice = (
        f"put {them} right, or leave {them} out with `--on-problem skip`"
        if enough
        else "no image is left that could be used"
    )
    if len(fatal) == 1:
        raise DataError(f"{fatal[0]}; {advice}.")
    listed = "".join(f"\n  - {line}" for line in fatal)
    raise DataError(f"nothing was written, there are {len(fatal)} problems; {advice}:{listed}")


def check_classes(learned: Pictures, support: Path) -> None:
    """Make sure that there is something to tell apart.

    Args:
        learned: a support set.
        support: the folder that it was read from.

    Raises:
        DataError: there is one class only, often because the folders lie one level deeper.
    """
    classes = sorted(set(learned.labels))
    if len(classes) < 2:
        raise DataError(
            f"{plain(str(support))} has the one class {plain(classes[0])}, but 2 or more are "
            "needed; give the folder in which the folders of all classes lie."
        )


def _below(folder: Path, label: str | None, above: Sequence[tuple[int, int]] = ()) -> Listed:
    """The images of a folder and of all folders in it."""
    status = os.stat(folder)
    here = (status.st_dev, status.st_ino)
    if here in above:
        # A link to a folder that it lies in.
        return Listed(())
    found = [_in(folder, label)]
    found += [_below(sub, label, (*above, here)) for sub in subfolders(folder).values()]
    return Listed(
        [picture for listed in found for picture in listed.pictures],
        [problem for listed in found for problem in listed.problems],
    )


def _in(folder: Path, label: str | None) -> Listed:
    """The images of one folder."""
    problems = []
    pictures = []
    for name, path in files(folder).items():
        if not is_image(name):
            continue
        if path.is_file():
            pictures.append(Picture(path, label))
        else:
            what = "is not a file, or a link to one that is not there"
            problems.append(Problem(plain(str(path)), what))
    unread = [name for name in files(folder) if name.lower().endswith(_UNREAD)]
    problems += [Problem(plain(str(folder / name)), _NOT_READ) for name in unread]
    others = [plain(n) for n in files(folder) if not is_image(n) and n not in unread]
    if others:
        what = f"what is no image is left out: {shortened(others)}"
        problems.append(Problem(plain(str(folder)), what, fatal=False))
    return Listed(pictures, problems)
