"""Any folder of class folders."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from alfa.data._base import SPLITS, Split
from alfa.data.sources._base import Item, Listing, Problem, Source, Workspace, register_source
from alfa.data.sources._class_folders import FoundClasses, find_classes, split_of_folder
from alfa.data.sources._published import drop_empty
from alfa.errors import ConfigError, DataError, check_choice, did_you_mean
from alfa.types import Count

SplitBy = Literal["auto", "folders", "file", "ratio", "train", "val", "test"]
_SPLIT_BY = ("auto", "folders", "file", "ratio", *SPLITS)
_MAX_HINTS = 20


@register_source("folder")
class Folder(Source):
    """Images of your own, a folder for each class.

    Args:
        split: which classes are for what. ``"folders"``: the folders that they lie under say it;
            ``"file"``: `split_file` does; ``"ratio"``: chance does; ``"train"``, ``"val"`` or
            ``"test"``: all are for that; ``"auto"``: whatever there is, in this order.
        split_file: JSON ``{"train": ["cat", ...], "val": [...], "test": [...]}``, or CSV with the
            columns ``class`` and ``split``.
        ratio: the shares of the classes that training, validation and test get by chance.
        seed: of that chance; a class is drawn by its name, so that it hardly matters which others
            there are.
        size: the side of the images.
        num_channels: 3, or 1 for grey images, which are normalised by 0.5 and 0.5.
        min_images: a class with fewer is left out, before classes are shared out.

    Raises:
        ConfigError: the options do not fit together.
    """

    title = "folder of class folders"
    size = 84
    layouts = (
        "class folders <class>/*",
        "folders {train,val,test}/<class>/*",
        "either in a zip or tar archive",
    )
    terms = "The images are your own, or whoever's they are."

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
        check_choice("split", split, _SPLIT_BY)
        if split == "file" and split_file is None:
            raise ConfigError("`split` is 'file', but `split_file` does not say which one.")
        if split_file is not None and split not in ("auto", "file"):
            raise ConfigError(
                f"`split` is {split!r}, but there is a `split_file`, {split_file}; leave one out."
            )
        total = math.fsum(ratio)
        if len(ratio) != len(SPLITS) or min(ratio) < 0 or not math.isclose(total, 1, abs_tol=1e-6):
            raise ConfigError(
                f"`ratio` is {list(ratio)}, but must be three shares, of train, val and test, that "
                "add up to 1, such as [0.64, 0.16, 0.2]."
            )
        self._split = "file" if split_file is not None else split
        self._file = None if split_file is None else Path(split_file)
        self._ratio, self._seed = ratio, seed
        self.size, self.num_channels, self._min_images = size, num_channels, min_images
        if num_channels == 1:
            self.mean, self.std = (0.5,), (0.5,)

    def find(self, path: Path, *, work: Workspace) -> Listing:
        found = _large(find_classes(self, path, work=work), self._min_images)
        split = self._split
        if split == "auto":
            is_split = any(entry.split is not None for entry in found.classes)
            split = "folders" if is_split else "ratio"
        if split == "folders":
            return _by_folder(found, path)
        classes = found.by_name()
        problems = list(found.problems)
        if split == "ratio":
            # A class without images, which is told of, must not take the place of one with some.
            full = [name for name, items in classes.items() if items]
            problems += [
                Problem(name, "the class has no images")
                for name, items in classes.items()
                if not items
            ]
            named = split_by_ratio(full, self._ratio, self._seed)
            problems += [
                Problem(name, f"none of the {len(full)} classes is for it", fatal=False)
                for name, share in zip(SPLITS, self._ratio, strict=True)
                if share and not named[name]
            ]
        elif self._file is not None:
            named, faults = _by_file(self._file, list(classes))
            problems += faults
        else:
            named = {some: list(classes) for some in SPLITS if some == split}
        listed: dict[Split, dict[str, Sequence[Item]]] = {
            some: {name: classes[name] for name in sorted(names)} for some, names in named.items()
        }
        problems += drop_empty(listed)
        return Listing({some: listed[some] for some in listed if listed[some]}, problems)


def _large(found: FoundClasses, min_images: int) -> FoundClasses:
    """Without the classes that have too few images, wherever these lie."""
    counts = {name: len(items) for name, items in found.by_name().items()}
    # A class with none at all is a mistake, which is told of later.
    small = {name: count for name, count in counts.items() if 0 < count < min_images}
    told = [
        Problem(name, f"left out, as its images are {count}, fewer than {min_images}", fatal=False)
        for name, count in small.items()
    ]
    kept = [entry for entry in found.classes if entry.name not in small]
    return FoundClasses(kept, (*found.problems, *told))


def _by_folder(found: FoundClasses, path: Path) -> Listing:
    """Every class in the split that it lies under; one that lies under two is in neither."""
    if any(entry.split is None for entry in found.classes):
        raise DataError(
            f"`split` is 'folders', but {path} has class folders without the folders train, val "
            "and test around them; make these, or choose another `split`."
        )
    problems = list(found.problems)
    under: dict[str, list[Split]] = {}
    listed: dict[Split, dict[str, Sequence[Item]]] = {split: {} for split in SPLITS}
    for entry in sorted(found.classes, key=lambda entry: entry.name):
        if entry.split is not None:
            under.setdefault(entry.name, []).append(entry.split)
            listed[entry.split][entry.name] = entry.items
    for name, splits in under.items():
        if len(splits) > 1:
            problems.append(_in_many(name, sorted(splits, key=SPLITS.index)))
            for split in splits:
                listed[split].pop(name, None)
    problems += drop_empty(listed)
    return Listing({split: listed[split] for split in SPLITS if listed[split]}, problems)


def _in_many(name: str, splits: Sequence[Split]) -> Problem:
    return Problem(name, f"the class is in {' and '.join(splits)}, but can be in one split only")


def split_by_ratio(
    names: Sequence[str], ratio: Sequence[float], seed: int
) -> dict[Split, list[str]]:
    """Classes shared out by chance, the same on every machine and with every version.

    Args:
        names: of the classes.
        ratio: the shares of the splits.
        seed: of the chance.
    """

    def chance(name: str) -> bytes:
        # A file system's names need not be text.
        return hashlib.sha256(f"{seed}/{name}".encode("utf-8", "surrogatepass")).digest()

    drawn = sorted(names, key=chance)
    exact = [share * len(names) for share in ratio]
    counts = [math.floor(number + 1e-9) for number in exact]
    by_rest = sorted(range(len(exact)), key=lambda which: counts[which] - exact[which])
    for which in by_rest[: len(names) - sum(counts)]:
        counts[which] += 1
    named: dict[Split, list[str]] = {}
    for split, count in zip(SPLITS, counts, strict=True):
        named[split], drawn = drawn[:count], drawn[count:]
    return named


def _by_file(
    path: Path, classes: Sequence[str]
) -> tuple[dict[Split, list[str]], Sequence[Problem]]:
    """The classes of every split that a file names, and what is wrong with it."""
    problems = []
    under: dict[str, list[Split]] = {}
    for where, name, written in _pairs(path):
        # As the folders are called everywhere, unless both spellings are there.
        name = name if name in classes else unicodedata.normalize("NFC", name)
        split = split_of_folder(written)
        if split is None:
            what = f"{written!r} is not a split; there are {', '.join(SPLITS)}"
            problems.append(Problem(where, what))
        elif name not in classes:
            # Looking for names that are alike takes long, and a few such hints are enough.
            hint = did_you_mean(name, classes) if len(problems) < _MAX_HINTS else ""
            what = f"{path.name} names this class, but it has no folder{hint and f'.{hint}'}"
            problems.append(Problem(f"{split}/{name}", what))
        elif split not in under.setdefault(name, []):
            under[name].append(split)
    named: dict[Split, list[str]] = {split: [] for split in SPLITS}
    for name in classes:
        splits = under.get(name, [])
        if not splits:
            problems.append(Problem(name, f"{path.name} has no split for this class"))
        elif len(splits) > 1:
            problems.append(_in_many(name, splits))
        else:
            named[splits[0]].append(name)
    return named, list(dict.fromkeys(problems))


def _pairs(path: Path) -> list[tuple[str, str, str]]:
    """Where a file says so, a class and the split that it is said to be in."""
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
        raise DataError(f"there is no split file {path}.") from None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError, csv.Error):
        raise DataError(
            f"{path} is not a split file: it must be JSON, such as "
            '{"train": ["cat"], "val": ["dog"], "test": ["fox"]}, or CSV whose first line names '
            "the columns class and split."
        ) from None
