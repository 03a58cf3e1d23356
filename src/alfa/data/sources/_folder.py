"""Any folder of class folders."""

import csv
import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from alfa.data._base import SPLITS, Split
from alfa.data.sources._base import Item, Listing, Problem, Source, Workspace, register_source
from alfa.data.sources._class_folders import FoundClasses, find_classes, split_of_folder
from alfa.errors import ConfigError, DataError, check_choice, did_you_mean
from alfa.types import Count

SplitBy = Literal["auto", "folders", "file", "ratio", "train", "val", "test"]
_MAX_HINTS = 20

_Splits = tuple[Mapping[Split, Sequence[str]], Sequence[Problem]]
"""The classes of every split, and problems with them."""


@register_source("folder")
class Folder(Source):
    """The user's images, in a folder for each class.

    Args:
        split: how to split the classes. ``"folders"``: by the folders around them; ``"file"``: by
            `split_file`; ``"ratio"``: at random; ``"train"``, ``"val"``, or ``"test"``: use all
            classes for this split; ``"auto"``: by `split_file`, else by folders, else at random.
        split_file: JSON ``{"train": ["cat", ...], "val": [...], "test": [...]}``, or CSV with the
            columns ``class`` and ``split``.
        ratio: the shares of the classes for random training, validation, and test splits.
        seed: the seed of the random split. Each class is drawn by its name, so the draw hardly
            depends on the other classes.
        size: the side of the images.
        num_channels: 3, or 1 for gray images, which are normalized by 0.5 and 0.5.
        min_images: skip classes with fewer images before splitting.

    Raises:
        ConfigError: the options contradict each other.
    """

    title = "folder of class folders"
    size = 84
    layouts = (
        "class folders <class>/*",
        "folders {train,val,test}/<class>/*",
        "either in a zip or tar archive",
    )
    terms = "The terms of the images apply."

    def __init__(
        self,
        *,
        split: SplitBy = "auto",
        split_file: Path | None = None,
        ratio: Sequence[float] = (0.64, 0.16, 0.2),
        seed: int = 0,
        size: Count = 84,
        num_channels: Literal[1, 3] = 3,
        min_images: Count = 1,
    ) -> None:
        check_choice("split", split, get_args(SplitBy))
        if split == "file" and split_file is None:
            raise ConfigError("`split` is 'file', but `split_file` is missing; give the file.")
        if split_file is not None and split not in ("auto", "file"):
            raise ConfigError(
                f"`split` is {split!r}, but `split_file` is {split_file}; give only one of them."
            )
        total = math.fsum(ratio)
        if len(ratio) != len(SPLITS) or min(ratio) < 0 or not math.isclose(total, 1, abs_tol=1e-6):
            raise ConfigError(
                "`ratio` must be three shares for train, val, and test that add up to 1, such as "
                f"[0.64, 0.16, 0.2], got {list(ratio)}."
            )
        self._split, self._file = split, None if split_file is None else Path(split_file)
        self._ratio, self._seed, self._min_images = ratio, seed, min_images
        self.size, self.num_channels = size, num_channels
        if num_channels == 1:
            self.mean, self.std = (0.5,), (0.5,)

    def find(self, path: Path, *, work: Workspace) -> Listing:
        found = _drop_small(find_classes(self, path, work=work), self._min_images)
        classes = found.by_name()
        in_folders = any(entry.split is not None for entry in found.classes)
        if self._file is not None:
            named, problems = _split_by_file(self._file, classes)
        elif split := next((known for known in SPLITS if known == self._split), None):
            named, problems = {split: list(classes)}, ()
        elif self._split == "folders" or (self._split == "auto" and in_folders):
            named, problems = _split_by_folder(found, path)
        else:
            named, problems = self._split_by_ratio(classes)
        listed = {split: {name: classes[name] for name in names} for split, names in named.items()}
        return Listing.of(listed, [*found.problems, *problems], self.published)

    def _split_by_ratio(self, classes: Mapping[str, Sequence[Item]]) -> _Splits:
        # Empty classes are not drawn, because they would replace usable ones.
        full = [name for name, items in classes.items() if items]
        named = split_by_ratio(full, self._ratio, self._seed)
        problems = [
            Problem(n, "the class has no images") for n, items in classes.items() if not items
        ]
        for split, share in zip(SPLITS, self._ratio, strict=True):
            if share and not named[split]:
                what = f"this split gets none of the {len(full)} classes"
                problems.append(Problem(split, what, fatal=False))
        return named, problems


def _drop_small(found: FoundClasses, min_images: int) -> FoundClasses:
    """Remove the classes with too few images, counted over all splits."""
    counts = {name: len(items) for name, items in found.by_name().items()}
    # A class without images is a mistake; `find` reports it later.
    small = {name: count for name, count in counts.items() if 0 < count < min_images}
    notes = [
        Problem(name, f"skipped, because it has {count} of {min_images} images", fatal=False)
        for name, count in small.items()
    ]
    large = [entry for entry in found.classes if entry.name not in small]
    return FoundClasses(large, (*found.problems, *notes))


def _split_by_folder(found: FoundClasses, path: Path) -> _Splits:
    splits_of: dict[str, list[Split]] = {}
    for entry in sorted(found.classes, key=lambda entry: entry.name):
        if entry.split is None:
            raise DataError(
                f"`split` is 'folders', but {path} has class folders without the folders train, "
                "val, and test around them; create these folders, or choose another `split`."
            )
        splits_of.setdefault(entry.name, []).append(entry.split)
    return _unique_splits(splits_of)


def _unique_splits(splits_of: Mapping[str, Sequence[Split]], *, missing: str = "") -> _Splits:
    """Put every class into its split, and report classes in none or in several."""
    named: dict[Split, list[str]] = {split: [] for split in SPLITS}
    problems = []
    for name, splits in splits_of.items():
        if len(splits) == 1:
            named[splits[0]].append(name)
        else:
            several = " and ".join(split for split in SPLITS if split in splits)
            what = f"the class is in {several}, but must be in only one split"
            problems.append(Problem(name, what if splits else missing))
    return named, problems


def split_by_ratio(
    names: Sequence[str], ratio: Sequence[float], seed: int
) -> dict[Split, list[str]]:
    """Assign classes to splits at random, the same on every machine and with every version."""

    def draw(name: str) -> bytes:
        # File names need not be valid text.
        return hashlib.sha256(f"{seed}/{name}".encode("utf-8", "surrogatepass")).digest()

    drawn = sorted(names, key=draw)
    exact = [share * len(names) for share in ratio]
    counts = [math.floor(number + 1e-9) for number in exact]
    by_remainder = sorted(range(len(exact)), key=lambda which: counts[which] - exact[which])
    for which in by_remainder[: len(names) - sum(counts)]:
        counts[which] += 1
    named: dict[Split, list[str]] = {}
    for split, count in zip(SPLITS, counts, strict=True):
        named[split], drawn = drawn[:count], drawn[count:]
    return named


def _split_by_file(path: Path, classes: Mapping[str, Sequence[Item]]) -> _Splits:
    problems: list[Problem] = []
    splits_of: dict[str, list[Split]] = {name: [] for name in classes}
    for where, name, written in _read_split_file(path):
        # Class names are normalized, unless two of them differ only in their normalization.
        name = name if name in classes else unicodedata.normalize("NFC", name)
        split = split_of_folder(written)
        if split is None:
            what = f"{written!r} is not a split; use {', '.join(SPLITS)}"
            problems.append(Problem(where, what))
        elif name not in classes:
            # Searching for similar names is slow, and a few hints are enough.
            hint = did_you_mean(name, classes) if len(problems) < _MAX_HINTS else ""
            what = f"the class in {path.name} has no folder{hint and f'.{hint}'}"
            problems.append(Problem(f"{split}/{name}", what))
        elif split not in splits_of[name]:
            splits_of[name].append(split)
    named, faults = _unique_splits(splits_of, missing=f"{path.name} has no split for this class")
    return named, list(dict.fromkeys([*problems, *faults]))


def _read_split_file(path: Path) -> list[tuple[str, str, str]]:
    """Return the line, class, and split of every entry of a split file."""
    try:
        content = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".csv":
            rows = csv.DictReader(content.splitlines())
            return [
                (f"{path.name}, line {rows.line_num}", row["class"].strip(), row["split"].strip())
                for row in rows
            ]
        table = json.loads(content)
        if not all(isinstance(names, list) for names in table.values()):
            raise TypeError
        return [(path.name, str(name), split) for split, names in table.items() for name in names]
    except FileNotFoundError:
        raise DataError(f"the split file {path} does not exist.") from None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError, csv.Error):
        raise DataError(
            f"{path} is not a split file: it must be JSON, such as "
            '{"train": ["cat"], "val": ["dog"], "test": ["fox"]}, or CSV with the columns class '
            "and split in the first line."
        ) from None
