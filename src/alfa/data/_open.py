"""The folders of datasets, and opening a dataset by name."""

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
# Datasets that are generated when they are opened, with their drawing styles.
GENERATED_DATASETS = {"strokes": DrawingStyle(), "strokes-free": FREEHAND_STYLE}


def data_folder() -> Path:
    """Return the folder of all datasets: ``ALFA_DATA``, or the user's cache folder."""
    given = os.environ.get(SWITCH) or str(pooch.os_cache("alfa"))
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise DataError(
            f"{SWITCH} is {given!r}, but that user has no home folder; use an absolute path."
        ) from None


def raw_dataset_path(dataset: str, *, root: Path | None = None) -> Path:
    """Return the folder of a dataset's published files."""
    return (root or data_folder()) / "raw" / dataset


def store_path(dataset: str, size: int, *, root: Path | None = None) -> Path:
    """Return the folder of the store of a dataset whose images have this side."""
    return (root or data_folder()) / "stores" / f"{dataset}-{size}"


def prepared(*, root: Path | None = None) -> dict[str, list[int]]:
    """Return the prepared image sizes of each dataset."""
    found: dict[str, list[int]] = {}
    for path in ((root or data_folder()) / "stores").glob(f"*-*/{INDEX}"):
        dataset, _, size = path.parent.name.rpartition("-")
        # A leading dot marks an unfinished store.
        if size.isdecimal() and not dataset.startswith("."):
            found.setdefault(dataset, []).append(int(size))
    return {dataset: sorted(sizes) for dataset, sizes in sorted(found.items())}


def has_dark_ink(dataset: str) -> bool | None:
    """Return True if drawings are dark on white, False if light on black, None if unknown."""
    if dataset in GENERATED_DATASETS:
        return True
    return SOURCES.get(dataset).dark_ink if dataset in SOURCES else None


def open_store(dataset: str, *, size: int | None = None, root: Path | None = None) -> Store:
    """Open a prepared dataset by name; `size` is optional if only one size is prepared."""
    known = prepared(root=root)
    sizes = known.get(dataset, [])
    if size is None and len(sizes) == 1:
        size = sizes[0]
    if size is not None and size in sizes:
        return Store.open(store_path(dataset, size, root=root))
    listed = ", ".join(map(str, sizes))
    if size is None and sizes:
        raise DataError(
            f"{dataset} is prepared in the sizes {listed}; choose one with --size, or in an "
            "experiment with `tasks.size` (`tasks.stored_size` for meta-dataset tasks)."
        )
    if sizes:
        raise DataError(
            f"{dataset} is prepared in size {listed}, but not in {size}; run "
            f"`{_prepare_command(dataset)} --size {size}` first."
        )
    if dataset in GENERATED_DATASETS:
        raise DataError(f"{dataset} is generated when it is opened, so it has no store.")
    folder = (root or data_folder()) / "stores"
    # A correctly spelled name needs no suggestion.
    others = [] if dataset in SOURCES else [*known, *GENERATED_DATASETS, *SOURCES]
    hint = " (`alfa data list` shows how to get it)" if dataset in SOURCES else ""
    raise DataError(
        f"{dataset} is not prepared under {folder}; run `{_prepare_command(dataset)}` first{hint}, "
        f"or set {SWITCH} to the folder of your datasets.{did_you_mean(dataset, others)}"
    )


def _prepare_command(dataset: str) -> str:
    """Return the command that prepares a published dataset, a user's dataset, or a folder."""
    if dataset in SOURCES:
        return f"alfa data prepare {dataset} PATH"
    if Path(dataset).is_dir():
        return f"alfa data prepare folder {dataset} --name NAME"
    return f"alfa data prepare folder PATH --name {dataset}"


@functools.lru_cache(maxsize=4)
def _strokes(dataset: str, size: int) -> ImageSet:
    """Generate a dataset once per process, which takes seconds, as read-only images."""
    images = replace(Strokes(size=size, style=GENERATED_DATASETS[dataset]).images(), name=dataset)
    images.images.flags.writeable = False
    return images


def open_images(dataset: str, *, size: int | None = None, root: Path | None = None) -> ImageSet:
    """Open a generated or prepared dataset by name, like `open_store`."""
    sizes = prepared(root=root).get(dataset, [])
    if dataset in GENERATED_DATASETS and (not sizes or size not in (None, *sizes)):
        return _strokes(dataset, size or 28)
    return open_store(dataset, size=size, root=root).image_set()
