"""Preparing images, and showing how far that is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer

from alfa.cli.progress import Meter, meter
from alfa.data import PrepareProgress, Store, data_folder, prepare
from alfa.data.sources import Source


def prepare_shown(
    source: Source,
    place: Path,
    *,
    name: str,
    size: int | None,
    on_problem: str,
    workers: int | None = None,
    force: bool = False,
    quiet: bool,
) -> tuple[Store, list[str]]:
    """Prepare a dataset, and show how far that is.

    Returns:
        The prepared dataset, and what was told on the way.

    Raises:
        typer.Exit: the user has stopped it.
    """
    notes: list[str] = []
    try:
        with meter(name, quiet=quiet) as shown:
            show = show_preparing(shown, name)

            def on_progress(progress: PrepareProgress) -> None:
                if progress.message is not None:
                    notes.append(progress.message)
                show(progress)

            store = prepare(
                source,
                place,
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


def show_preparing(shown: Meter, name: str) -> Callable[[PrepareProgress], None]:
    """What `alfa.data.prepare` is to tell its progress to."""

    def show(progress: PrepareProgress) -> None:
        if progress.message is not None:
            shown.tell(progress.message)
        if progress.archive is not None:
            what = f"unpacking {progress.archive}"
            shown.update(what, progress.done, progress.total, unit="bytes", transient=True)
        # While images are looked for, there is nothing to count.
        elif progress.total:
            shown.update(name, progress.done, progress.total, unit="images")

    return show
