"""`alfa serve`."""

import time
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli.start import Computing
from alfa.cli.stopping import stoppable


def serve(
    run: opts.PhotoModel = Path("photos"),
    port: Annotated[int, Option(min=0, max=65535, help="Local port; 0 selects a free one.")] = 7860,
    open_browser: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
    threads: opts.Threads = None,
) -> None:
    """Serve a web page for teaching a trained run new classes from a few pictures.

    The server accepts only local connections, opens none itself, and stores nothing on disk.
    Requires the extra `serve`.

    Examples:

        alfa serve --open
        alfa serve runs/strokes-demo --open
        alfa serve runs/cifar --port 8000
    """
    import webbrowser

    lazy.serve.check_gradio()
    Computing(threads=threads).open_run(run)
    with stoppable(quiet=True) as should_stop, lazy.serve.serving(run, port=port) as page:
        typer.echo(f"{run} is at {page.address} (press Ctrl-C to stop)")
        if open_browser:
            webbrowser.open(page.address)
        while not should_stop():
            time.sleep(0.1)
