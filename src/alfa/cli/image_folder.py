"""`alfa train FOLDER`: from a folder of images to an experiment on them."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from alfa.build import OwnData, contents, counts_of, experiment_for, survey, title_of, worth
from alfa.cli._prepare import prepare_with_progress, progress_callback
from alfa.cli.progress import Meter, meter
from alfa.config import Choices, Experiment, datasets
from alfa.data import PrepareProgress, Store, data_folder, open_store, store_path
from alfa.data.sources import Workspace
from alfa.errors import DataError

_UNPACKED = ".unpacked-"
# Seconds after which an unpacked archive was left behind by a killed process.
_OLD = 24 * 3600.0


def is_image_folder(target: str) -> bool:
    """Whether a target is the path of a folder or an archive, and not a dataset or a file."""
    path = Path(target)
    if path.suffix == ".toml" or target in datasets():
        return False
    return path.exists() or os.sep in target or path.suffix != ""


def prepare_folder(
    path: Path, choices: Choices, overrides: Sequence[str], on_problem: str, *, quiet: bool
) -> Experiment:
    """Prepare a folder of images, unless it is prepared already, and compose an experiment on it.

    Problems with the folder or with a setting are reported before anything is written.
    """
    # In the data folder, which needs as much room anyhow. Process numbers are not unique:
    # containers may share the disk.
    work = data_folder() / f"{_UNPACKED}{secrets.token_hex(8)}"
    _remove_old(data_folder())
    try:
        with meter(title_of(path), quiet=quiet) as shown:
            data = _surveyed(path, work, shown)
            planned = experiment_for(
                data.dataset,
                data.counts,
                size=data.source.size,
                choices=choices,
                overrides=overrides,
            )
            size = planned.tasks.options.get("size") or data.source.size
            for note in (*data.notes, contents(data.counts), worth(data.counts)):
                shown.tell(note)
            _tell_tasks(data, planned, size, shown)
            store = _intact(data.dataset, size, shown)
            if store is not None:
                shown.tell(f"prepared already: {store.path}")
        if store is None:
            store, _ = prepare_with_progress(
                data.source,
                path,
                name=data.dataset,
                size=size,
                on_problem=on_problem,
                force=store_path(data.dataset, size).exists(),
                quiet=quiet,
            )
    finally:
        shutil.rmtree(work, ignore_errors=True)
    counts = counts_of(store.index, path)
    if counts == data.counts:
        return planned
    # Images that could not be read were skipped.
    experiment = experiment_for(
        data.dataset, counts, size=size, choices=choices, overrides=overrides
    )
    with meter(title_of(path), quiet=quiet) as shown:
        shown.tell(f"without what was left out, {contents(counts)}")
        if worth(counts) != worth(data.counts):
            shown.tell(worth(counts))
        _tell_tasks(data, experiment, size, shown)
    return experiment


def _remove_old(folder: Path) -> None:
    """Remove archives that were unpacked by processes that were killed."""
    for path in folder.glob(f"{_UNPACKED}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _OLD:
                shutil.rmtree(path)


def _intact(dataset: str, size: int, shown: Meter) -> Store | None:
    """The prepared images; None if there are none, or they are damaged."""
    place = store_path(dataset, size)
    try:
        return open_store(dataset, size=size) if place.exists() else None
    except DataError as error:
        # A file that cannot be read at the moment may be intact.
        cause = error.__context__
        if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
            raise
        shown.tell(f"{place} is damaged, and prepared again")
        return None


def _surveyed(path: Path, work: Path, shown: Meter) -> OwnData:
    show = progress_callback(shown, shown.name)

    def on_unpack(archive: Path, done: int, total: int) -> None:
        show(PrepareProgress(done, total, archive=archive.name))

    return survey(path, work=Workspace(work, on_unpack))


def _tell_tasks(data: OwnData, experiment: Experiment, size: int, shown: Meter) -> None:
    options = experiment.tasks.options
    if {"way", "shot", "num_query"} <= options.keys():
        channels = data.source.num_channels
        # Measured with 4-CONV on two cores.
        faster = ", and tasks.size=32 is six times as fast" if size == 84 else ""
        shown.tell(
            f"tasks of {options['way']} classes, each learned from {options['shot']} images and "
            f"judged on {options['num_query']} others, of {size} x {size} x {channels}; --set "
            f"changes any setting{faster}"
        )
