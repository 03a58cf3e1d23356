"""Where datasets lie, and how one is opened by name."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path

import pooch

from alfa.data._image_set import ImageSet
from alfa.data._store import INDEX, Store
from alfa.data._strokes import FREEHAND_STYLE, DrawingStyle, Strokes
from alfa.data.sources import SOURCES
from alfa.errors import DataError, did_you_mean

SWITCH = "ALFA_DATA"
# Datasets that are drawn when they are opened, and the hand that draws them.
GENERATED_DATASETS = {"strokes": DrawingStyle(), "strokes-free": FREEHAND_STYLE}


def data_folder() -> Path:
    """Where datasets are kept: ``ALFA_DATA``, or the user's cache folder."""
    given = os.environ.get(SWITCH) or str(pooch.os_cache("alfa"))
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise DataError(
            f"{SWITCH} is {given!r}, but there is no home folder of such a user; give a full path."
        ) from None


def raw_dataset_path(dataset: str, *, root: Path | None = None) -> Path:
    """Where the files of a dataset lie as they were published."""
    return (root or data_folder()) / "raw" / dataset


def store_path(dataset: str, size: int, *, root: Path | None = None) -> Path:
    """The store of a dataset whose images have this side."""
    return (root or data_folder()) / "stores" / f"{dataset}-{size}"


def prepared(*, root: Path | None = None) -> dict[str, list[int]]:
    """The sizes in which each dataset is prepared."""
    found: dict[str, list[int]] = {}
    for path in ((root or data_folder()) / "stores").glob(f"*-*/{INDEX}"):
        dataset, _, size = path.parent.name.rpartition("-")
        # A name that begins with a dot is that of a store in the making.
        if size.isdecimal() and not dataset.startswith("."):
            found.setdefault(dataset, []).append(int(size))
    return {dataset: sorted(sizes) for dataset, sizes in sorted(found.items())}


def has_dark_ink(dataset: str) -> bool | None:
    """Whether drawings of a dataset are dark on white or light on black; None if unknown."""
    if dataset in GENERATED_DATASETS:
        return True
    return SOURCES.get(dataset).dark_ink if dataset in SOURCES else None


def open_store(dataset: str, *, size: int | None = None, root: Path | None = None) -> Store:
    """A prepared dataset by name.

    Args:
        dataset: its name.
        size: the side of its images; may be left out where only one size is prepared.
        root: where datasets are kept.

    Raises:
        DataError: it is not prepared, or of another size; says what to run.
    """
    known = prepared(root=root)
    sizes = known.get(dataset, [])
    if size is None and len(sizes) == 1:
        size = sizes[0]
    if size is not None and size in sizes:
        return Store.open(store_path(dataset, size, root=root))
    listed = ", ".join(map(str, sizes))
    if size is None and sizes:
        raise DataError(
            f"{dataset} is prepared in the sizes {listed}; say which one is meant, by --size or, "
            "in an experiment, by tasks.size, and for tasks of any size by tasks.stored_size."
        )
    if sizes:
        raise DataError(
            f"{dataset} is prepared in size {listed}, but not in {size}; run "
            f"`{_command(dataset)} --size {size}` first."
        )
    if dataset in GENERATED_DATASETS:
        raise DataError(f"{dataset} is drawn when it is needed; there is nothing prepared of it.")
    folder = (root or data_folder()) / "stores"
    # What is spelled right needs no other name.
    others = [] if dataset in SOURCES else [*known, *GENERATED_DATASETS, *SOURCES]
    where = " (`alfa data list` says where to get it)" if dataset in SOURCES else ""
    raise DataError(
        f"{dataset} is not prepared under {folder}; run `{_command(dataset)}` first{where}, or set "
        f"{SWITCH} to where it is.{did_you_mean(dataset, others)}"
    )


def _command(dataset: str) -> str:
    """What prepares a dataset: a published one, a user's own, or a folder in place of a name."""
    if dataset in SOURCES:
        return f"alfa data prepare {dataset} PATH"
    if Path(dataset).is_dir():
        return f"alfa data prepare folder {dataset} --name NAME"
    return f"alfa data prepare folder PATH --name {dataset}"


@functools.lru_cache(maxsize=4)
def _strokes(dataset: str, size: int) -> ImageSet:
    """Drawn once in a process, which takes seconds; nobody can change them."""
    images = replace(Strokes(size=size, style=GENERATED_DATASETS[dataset]).images(), name=dataset)
    images.images.flags.writeable = False
    return images


def open_images(dataset: str, *, size: int | None = None, root: Path | None = None) -> ImageSet:
    """A dataset by name.

    Args:
        dataset: ``"strokes"`` or ``"strokes-free"``, or the name of a prepared one.
        size: the side of its images; may be left out where only one size is prepared.
        root: where datasets are kept.

    Raises:
        DataError: it is not prepared, or of another size; says what to run.
    """
    sizes = prepared(root=root).get(dataset, [])
    if dataset in GENERATED_DATASETS and (not sizes or size not in (None, *sizes)):
        return _strokes(dataset, size or 28)
    return open_store(dataset, size=size, root=root).image_set()
