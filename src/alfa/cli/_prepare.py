"""Prepare images, and show the progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from alfa.cli import lazy
from alfa.cli.progress import meter


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
