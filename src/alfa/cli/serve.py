"""`alfa serve`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from alfa.cli._options import TheRun, Threads

# Seconds until Ctrl-C is noticed.
_PAUSE = 0.1


def serve(
    run: TheRun,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of this computer; 0 for any that is free.")
    ] = 7860,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser.")
    ] = False,
    threads: Threads = None,
) -> None:
    """Open a page where anybody teaches a trained run with a few pictures, and tries it.

    It answers on this computer only, asks no other, and keeps nothing after it is closed.
    Needs the extra `serve`.

    Examples:

        alfa serve runs/strokes-demo --open

        alfa serve runs/cifar --port 8000
    """
    import webbrowser

    from alfa.cli.start import set_up
    from alfa.cli.stopping import stoppable
    from alfa.runs import Run
    from alfa.serve import check_gradio, serving

    check_gradio()
    set_up(Run.open(run).experiment, device="cpu", threads=threads)
    with stoppable(quiet=True) as wish, serving(run, port=port) as page:
        typer.echo(f"{run} is at {page.address} (Ctrl-C ends it)")
        if open_browser:
            webbrowser.open(page.address)
        while not wish():
            time.sleep(_PAUSE)
