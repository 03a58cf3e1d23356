"""Prepare images, and show the progress."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from alfa.cli import lazy
from alfa.cli.progress import Meter, meter


def prepare_with_progress(
    source: lazy.data.Source, path: Path, *, name: str, quiet: bool, **options: Any
) -> tuple[lazy.data.Store, list[str]]:
    """Prepare a dataset with options of `alfa.data.prepare`; return it and all messages."""
    messages: list[str] = []
    try:
        with meter(name, quiet=quiet) as shown:
            show = progress_callback(shown, name)

            def on_progress(progress: lazy.data.PrepareProgress) -> None:
                if progress.message is not None:
                    messages.append(progress.message)
                show(progress)

            root = lazy.data.data_folder()
            store = lazy.data.prepare(
                source, path, root=root, name=name, on_progress=on_progress, **options
            )
    except KeyboardInterrupt:
        typer.echo("alfa: stopped; run the same command again to continue.", err=True)
        raise typer.Exit(130) from None
    return store, messages


def progress_callback(shown: Meter, name: str) -> Callable[[lazy.data.PrepareProgress], None]:
    """Return a callback that shows the progress of `alfa.data.prepare`."""

    def show(progress: lazy.data.PrepareProgress) -> None:
        if progress.message is not None:
            shown.print(progress.message)
        if progress.archive is not None:
            work = f"unpacking {progress.archive}"
            shown.update(work, progress.done, progress.total, unit="bytes", transient=True)
        # The total is unknown during the search for images.
        elif progress.total:
            shown.update(name, progress.done, progress.total, unit="images")

    return show
