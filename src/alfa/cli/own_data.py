"""`alfa train --data`: from a folder of images to an experiment on them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from alfa.cli.preparing import prepare_shown, show_preparing
from alfa.cli.progress import Meter, meter
from alfa.config import Experiment
from alfa.data import Workspace, data_folder, open_store, store_path
from alfa.data._prepare import Progress
from alfa.own_data import (
    OwnData,
    contents,
    counts_of,
    experiment_for,
    survey,
    title_of,
    worth,
)


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
    work = data_folder() / f".unpacked-{os.getpid()}"
    try:
        with meter(title_of(path), quiet=quiet) as shown:
            data = _surveyed(path, work, shown)
            planned = experiment_for(
                data.dataset, data.counts, size=data.source.size, overrides=overrides
            )
            size = planned.tasks.options.get("size") or data.source.size
            _tell(data, planned, size, shown)
            place = store_path(data.dataset, size)
            if place.exists():
                shown.tell(f"prepared already: {place}")
        if place.exists():
            store = open_store(data.dataset, size=size)
        else:
            store, _ = prepare_shown(
                data.source,
                path,
                name=data.dataset,
                size=size,
                on_problem=on_problem,
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
