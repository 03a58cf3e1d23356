"""`alfa train --data`: from a folder of images to an experiment on them."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from alfa.cli.preparing import prepare_shown, show_preparing
from alfa.cli.progress import Meter, meter
from alfa.config import Experiment
from alfa.data import Store, Workspace, data_folder, open_store, store_path
from alfa.data._prepare import Progress
from alfa.errors import DataError
from alfa.own_data import (
    OwnData,
    contents,
    counts_of,
    experiment_for,
    survey,
    title_of,
    worth,
)

_UNPACKED = ".unpacked-"
# Seconds after which nobody can still be busy with what was unpacked.
_OLD = 24 * 3600.0


def own_experiment(
    path: Path, *, overrides: Sequence[str], on_problem: str, quiet: bool
) -> Experiment:
    """Prepare a folder of images, unless that was done before, and build an experiment on it.

    What is wrong with the folder or with a setting is said before anything is written.

    Args:
        path: a folder of class folders, or an archive of one.
        overrides: ``"outer.num_iterations=100"`` and the like.
        on_problem: ``"stop"`` or ``"skip"``, as `alfa.data.prepare` takes it.
        quiet: print nothing.

    Raises:
        AlfaError: the folder cannot be trained on, or a setting is wrong.
        typer.Exit: the user has stopped it.
    """
    # Beside what is prepared: there must be room for as much anyhow.
    # Nobody else's: containers that share a disk have the same process numbers.
    work = data_folder() / f"{_UNPACKED}{secrets.token_hex(8)}"
    _remove_old(data_folder())
    try:
        with meter(title_of(path), quiet=quiet) as shown:
            data = _surveyed(path, work, shown)
            planned = experiment_for(
                data.dataset, data.counts, size=data.source.size, overrides=overrides
            )
            size = planned.tasks.options.get("size") or data.source.size
            _tell(data, planned, size, shown)
            store = _whole(data.dataset, size, shown)
            if store is not None:
                shown.tell(f"prepared already: {store.path}")
        if store is None:
            store, _ = prepare_shown(
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
    # Images that could not be read may have been left out.
    counts = counts_of(store.index, path)
    experiment = experiment_for(data.dataset, counts, size=size, overrides=overrides)
    if counts != data.counts:
        with meter(title_of(path), quiet=quiet) as shown:
            shown.tell(f"without what was left out, {contents(counts)}")
            if worth(counts) != worth(data.counts):
                shown.tell(worth(counts))
            _tell_tasks(data, experiment, size, shown)
    return experiment


def _remove_old(folder: Path) -> None:
    """Remove what was unpacked by those that were killed before they could do so themselves."""
    for path in folder.glob(f"{_UNPACKED}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _OLD:
                shutil.rmtree(path)


def _whole(dataset: str, size: int, shown: Meter) -> Store | None:
    """The prepared images; None if they are not there, or damaged."""
    place = store_path(dataset, size)
    try:
        return open_store(dataset, size=size) if place.exists() else None
    except DataError as error:
        # What cannot be read just now may be whole.
        cause = error.__context__
        if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
            raise
        shown.tell(f"{place} is damaged, and prepared anew")
        return None


def _surveyed(path: Path, work: Path, shown: Meter) -> OwnData:
    show = show_preparing(shown, shown.name)

    def on_unpack(archive: Path, done: int, total: int) -> None:
        show(Progress(done, total, archive=archive.name))

    return survey(path, work=Workspace(work, on_unpack))


def _tell(data: OwnData, experiment: Experiment, size: int, shown: Meter) -> None:
    """Say what there is, whether it is worth it, and what is going to be trained."""
    for note in data.notes:
        shown.tell(note)
    shown.tell(contents(data.counts))
    shown.tell(worth(data.counts))
    _tell_tasks(data, experiment, size, shown)


def _tell_tasks(data: OwnData, experiment: Experiment, size: int, shown: Meter) -> None:
    options = experiment.tasks.options
    if {"way", "shot", "num_query"} <= options.keys():
        channels = data.source.num_channels
        # As measured with 4-CONV on two cores.
        faster = ", and tasks.size=32 is six times as fast" if size == 84 else ""
        shown.tell(
            f"tasks of {options['way']} classes, each learned from {options['shot']} images and "
            f"judged on {options['num_query']} others, of {size} x {size} x {channels}; --set "
            f"changes any setting{faster}"
        )
