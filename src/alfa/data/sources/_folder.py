"""Any folder of class folders."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
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

_Splits = tuple[dict[Split, list[str]], Sequence[Problem]]
"""The classes of every split, and problems with them."""


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
        found = _drop_small(find_classes(self, path, work=work), self._min_images)
        classes = found.by_name()
        split = self._split
        if split == "auto":
            is_split = any(entry.split is not None for entry in found.classes)
            split = "folders" if is_split else "ratio"
        if split == "folders":
            named, problems = _split_by_folder(found, path)
        elif split == "ratio":
            named, problems = self._split_by_ratio(classes)
        elif self._file is not None:
            named, problems = _split_by_file(self._file, list(classes))
        else:
            named, problems = {some: list(classes) for some in SPLITS if some == split}, []
        listed: dict[Split, dict[str, Sequence[Item]]] = {
            some: {name: classes[name] for name in sorted(names)} for some, names in named.items()
        }
        problems = [*found.problems, *problems, *drop_empty(listed)]
        return Listing({some: listed[some] for some in listed if listed[some]}, problems)

    def _split_by_ratio(self, classes: Mapping[str, Sequence[Item]]) -> _Splits:
        # A class without images must not take the place of one with images.
        full = [name for name, items in classes.items() if items]
        empty = [name for name, items in classes.items() if not items]
        named = split_by_ratio(full, self._ratio, self._seed)
        unused = [
            split
            for split, share in zip(SPLITS, self._ratio, strict=True)
            if share and not named[split]
        ]
        what = f"none of the {len(full)} classes is for it"
        return named, [
            *(Problem(name, "the class has no images") for name in empty),
            *(Problem(split, what, fatal=False) for split in unused),
        ]


def _drop_small(found: FoundClasses, min_images: int) -> FoundClasses:
    """Without the classes that have too few images in all splits together."""
    counts = {name: len(items) for name, items in found.by_name().items()}
    # A class without any images is a mistake, and reported later.
    small = {name: count for name, count in counts.items() if 0 < count < min_images}
    notes = [
        Problem(name, f"left out, as its images are {count}, fewer than {min_images}", fatal=False)
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
                "val and test around them; make these, or choose another `split`."
            )
        splits_of.setdefault(entry.name, []).append(entry.split)
    return _assign(splits_of)


def _assign(splits_of: Mapping[str, Sequence[Split]], *, missing: str = "") -> _Splits:
    """Put every class into its split; a class in none or in several is a problem."""
    named: dict[Split, list[str]] = {split: [] for split in SPLITS}
    problems = []
    for name, splits in splits_of.items():
        if len(splits) == 1:
            named[splits[0]].append(name)
        else:
            several = " and ".join(split for split in SPLITS if split in splits)
            what = f"the class is in {several}, but can be in one split only"
            problems.append(Problem(name, what if splits else missing))
    return named, problems


def split_by_ratio(
    names: Sequence[str], ratio: Sequence[float], seed: int
) -> dict[Split, list[str]]:
    """Assign classes to splits at random, the same on every machine and with every version."""

    def chance(name: str) -> bytes:
        # Names of files need not be valid text.
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


def _split_by_file(path: Path, classes: Sequence[str]) -> _Splits:
    problems: list[Problem] = []
    splits_of: dict[str, list[Split]] = {name: [] for name in classes}
    for where, name, written in _pairs(path):
        # Folders have this spelling everywhere, unless both are there.
        name = name if name in classes else unicodedata.normalize("NFC", name)
        split = split_of_folder(written)
        if split is None:
            what = f"{written!r} is not a split; there are {', '.join(SPLITS)}"
            problems.append(Problem(where, what))
        elif name not in classes:
            # Looking for similar names takes long, and a few hints are enough.
            hint = did_you_mean(name, classes) if len(problems) < _MAX_HINTS else ""
            what = f"{path.name} names this class, but it has no folder{hint and f'.{hint}'}"
            problems.append(Problem(f"{split}/{name}", what))
        elif split not in splits_of[name]:
            splits_of[name].append(split)
    named, faults = _assign(splits_of, missing=f"{path.name} has no split for this class")
    return named, list(dict.fromkeys([*problems, *faults]))


def _pairs(path: Path) -> list[tuple[str, str, str]]:
    """The lines of a split file: where, the class, and its split."""
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
