"""Starting a command as several processes of this machine."""

from __future__ import annotations

import logging
import os
import signal
import sys
import uuid
from collections.abc import Sequence

import typer
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from alfa.ops import usable_cpus

# Seconds that processes have to keep everything after they are asked to stop.
_TO_STOP = 600


def launch(words: Sequence[str], *, count: int, max_restarts: int, hint: str) -> None:
    """Run ``alfa`` with these words as several processes that know of each other.

    Args:
        words: of the command line.
        count: how many processes.
        max_restarts: how often all are started anew after one of them has died.
        hint: how to go on, if all comes to an end.

    Raises:
        typer.Exit: they did not all succeed.
    """
    # What went wrong is told below, in one sentence; this process does nothing else.
    logging.disable(logging.ERROR)
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_TO_STOP))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cpus() // count)))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        # This machine alone, at any port that is free.
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=max_restarts,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "alfa", *words)
    except ChildFailedError as error:
        number, failure = error.get_first_failure()
        code = failure.exitcode
        if code >= 0:
            # It has said itself what was wrong.
            raise typer.Exit(code) from None
        name = signal.Signals(-code).name
        typer.echo(f"alfa: process {number} of {count} was ended by {name}; {hint}.", err=True)
        raise typer.Exit(128 - code) from None
    except SignalException as stopped:
        raise typer.Exit(128 + stopped.sigval) from None
