"""Prepare datasets of images, and compose experiments on folders of images."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from alfa.cli import lazy
from alfa.cli.progress import Meter, meter
from alfa.errors import DataError

if TYPE_CHECKING:
    from alfa.build import ImageFolder
    from alfa.config import Choices, Experiment

_UNPACKED = ".unpacked-"
# Age in seconds at which an unpacked archive must be from a killed process.
_OLD = 24 * 3600.0


def prepare_with_progress(
    source: lazy.data.Source, path: Path, *, name: str, quiet: bool, **options: Any
) -> tuple[lazy.data.Store, list[str]]:
    """Prepare a dataset with options of `alfa.data.prepare`; return it and all messages."""
    messages: list[str] = []
    try:
        with meter(name, quiet=quiet) as shown:

            def on_progress(progress: lazy.data.PrepareProgress) -> None:
                done, total = progress.done, progress.total
                if progress.message is not None:
                    messages.append(progress.message)
                    shown.print(progress.message)
                if progress.archive is not None:
                    work = f"unpacking {progress.archive}"
                    shown.update(work, done, total, unit="bytes", transient=True)
                # The total is unknown during the search for images.
                elif total:
                    shown.update(name, done, total, unit="images")

            options |= {"root": lazy.data.data_folder(), "on_progress": on_progress}
            store = lazy.data.prepare(source, path, name=name, **options)
    except KeyboardInterrupt:
        typer.echo("alfa: stopped; run the same command again to continue.", err=True)
        raise typer.Exit(130) from None
    return store, messages


def is_image_folder(target: str) -> bool:
    """Return True if a target is the path of a folder or an archive."""
    path = Path(target)
    if path.suffix == ".toml" or target in lazy.config.datasets():
        return False
    return path.exists() or os.sep in target or path.suffix != ""


def prepare_folder(
    path: Path, choices: Choices, overrides: Sequence[str], on_problem: str, *, quiet: bool
) -> Experiment:
    """Prepare a folder of images, unless it is already prepared, and compose an experiment.

    Errors in the folder or the settings are raised before anything is written.
    """
    build, root, name = lazy.build, lazy.data.data_folder(), lazy.build.title_of(path)
    # The data folder needs room for the images anyway. A random name is unique even if several
    # containers, whose process numbers can be equal, share the disk.
    work = root / f"{_UNPACKED}{os.urandom(8).hex()}"
    _remove_old(root)
    try:
        with meter(name, quiet=quiet) as shown:
            data = _survey(path, work, shown)
            choices = build.choose_backbone(data, choices, overrides)
            if choices.backbone is not None and choices.is_pretrained:
                data = data.for_backbone(choices.backbone)
            advise = partial(build.training_advice, is_pretrained=choices.is_pretrained)
            compose = partial(
                build.experiment_for, data.dataset, choices=choices, overrides=overrides
            )
            planned = compose(data.counts, size=data.source.size)
            size = planned.tasks.options.get("size") or data.source.size
            advice = advise(data.counts)
            for note in (*data.notes, build.describe_counts(data.counts), advice):
                shown.print(note)
            _print_tasks(data, planned, size, shown)
            store = _open_intact(data.dataset, size, shown)
            if store is not None:
                shown.print(f"already prepared: {store.path}")
        if store is None:
            is_damaged = lazy.data.store_path(data.dataset, size).exists()
            options = {"size": size, "on_problem": on_problem, "force": is_damaged}
            store, _ = prepare_with_progress(
                data.source, path, name=data.dataset, quiet=quiet, **options
            )
    finally:
        shutil.rmtree(work, ignore_errors=True)
    counts = build.usable_counts(store.index, path)
    if counts == data.counts:
        return planned
    # Unreadable images were skipped.
    experiment = compose(counts, size=size)
    with meter(name, quiet=quiet) as shown:
        shown.print(f"without the skipped images, {build.describe_counts(counts)}")
        if advise(counts) != advice:
            shown.print(advise(counts))
        _print_tasks(data, experiment, size, shown)
    return experiment


def _remove_old(folder: Path) -> None:
    """Remove archives that killed processes unpacked."""
    for path in folder.glob(f"{_UNPACKED}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _OLD:
                shutil.rmtree(path)


def _open_intact(dataset: str, size: int, shown: Meter) -> lazy.data.Store | None:
    """Open the prepared images; return None if they are missing or damaged."""
    place = lazy.data.store_path(dataset, size)
    try:
        return lazy.data.open_store(dataset, size=size) if place.exists() else None
    except DataError as error:
        # A file that is temporarily unreadable may be intact.
        cause = error.__context__
        if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
            raise
        shown.print(f"{place} is damaged; preparing it again")
        return None


def _survey(path: Path, work: Path, shown: Meter) -> ImageFolder:
    def on_unpack(archive: Path, done: int, total: int) -> None:
        shown.update(f"unpacking {archive.name}", done, total, unit="bytes", transient=True)

    return lazy.build.scan_image_folder(path, work=lazy.data.Workspace(work, on_unpack))


def _print_tasks(data: ImageFolder, experiment: Experiment, size: int, shown: Meter) -> None:
    options = experiment.tasks.options
    if {"way", "shot", "num_query"} <= options.keys():
        # Measured with 4-CONV on two cores.
        faster = "; tasks.size=32 trains six times as fast" if size == 84 else ""
        inputs = f"images each, of {size} x {size} x {data.source.num_channels}"
        if backbone := options.get("backbone"):
            inputs, faster = f"images each, as features of {backbone}", ""
        shown.print(
            f"tasks: {options['way']} classes with {options['shot']} support and "
            f"{options['num_query']} query {inputs}; change settings with --set{faster}"
        )
