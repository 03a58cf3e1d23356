"""Prepare images and show the progress."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer

from alfa.cli.progress import Meter, meter
from alfa.data import PrepareProgress, Store, data_folder, prepare
from alfa.data.sources import Source


def prepare_with_progress(
    source: Source,
    path: Path,
    *,
    name: str,
    size: int | None,
    on_problem: str,
    workers: int | None = None,
    force: bool = False,
    quiet: bool,
) -> tuple[Store, list[str]]:
    """Prepare a dataset; returns it, and the messages on the way."""
    notes: list[str] = []
    try:
        with meter(name, quiet=quiet) as shown:
            show = progress_callback(shown, name)

            def on_progress(progress: PrepareProgress) -> None:
                if progress.message is not None:
                    notes.append(progress.message)
                show(progress)

            store = prepare(
                source,
                path,
                root=data_folder(),
                size=size,
                name=name,
                on_problem=on_problem,  # type: ignore[arg-type]
                workers=workers,
                force=force,
                on_progress=on_progress,
            )
    except KeyboardInterrupt:
        typer.echo("alfa: stopped; the same command goes on from here.", err=True)
        raise typer.Exit(130) from None
    return store, notes


def progress_callback(shown: Meter, name: str) -> Callable[[PrepareProgress], None]:
    """Shows the progress of `alfa.data.prepare` on a meter."""

    def show(progress: PrepareProgress) -> None:
        if progress.message is not None:
            shown.tell(progress.message)
        if progress.archive is not None:
            what = f"unpacking {progress.archive}"
            shown.update(what, progress.done, progress.total, unit="bytes", transient=True)
        # While images are searched, there is nothing to count.
        elif progress.total:
            shown.update(name, progress.done, progress.total, unit="images")

    return show
