"""`alfa serve`."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from alfa.cli import lazy
from alfa.cli.stopping import stoppable


def serve(
    run: Annotated[
        Path | None, Argument(help="Run folder, or a model of `alfa models`; photos if installed.")
    ] = None,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 selects a free one.")] = 7860,
    token: Annotated[
        str | None,
        Option(envvar="ALFA_TOKEN", help="Secret of the clients; required for another --host."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None, Option(help="Name of this server, such as behind a proxy.")
    ] = None,
    open_browser: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
    threads: Annotated[
        int | None, Option(min=1, help="CPU threads; defaults to all cores but one.")
    ] = None,
) -> None:
    """Serve a web page and an HTTP API that learn classes from a few photos of each.

    The server accepts only local connections by default, opens none itself, and stores nothing on
    disk. `/docs` documents the API. Requires the extra `serve`.

    Examples:

        alfa serve --open
        alfa serve runs/strokes-demo --port 8000
        ALFA_TOKEN=$(openssl rand -hex 16) alfa serve --host 0.0.0.0
    """
    import webbrowser

    lazy.serve.check_installed()
    lazy._runtime.tune()
    # One core remains for decoding and for other requests.
    lazy._runtime.set_threads(threads or max(1, lazy._runtime.usable_cpus() - 1))
    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "token": token,
        "hosts": allowed_host or [],
    }
    with stoppable(quiet=True) as should_stop, lazy.serve.serving(run, **options) as server:
        typer.echo(f"the page is at {server.login} (press Ctrl-C to stop)")
        if open_browser:
            webbrowser.open(server.login)
        while not should_stop():
            time.sleep(0.1)
