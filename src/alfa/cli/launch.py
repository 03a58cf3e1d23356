"""Run a command as several processes on this machine."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from types import FrameType

import typer

from alfa._runtime import name_parent, usable_cpus
from alfa.cli.stopping import LOST, signal_handlers

# Seconds that processes have to save their progress after a request to stop.
_STOP_SECONDS = 600.0
_POLL_SECONDS = 0.05
# The exit code of a process that has reported an error of the user.
_USER_ERROR = 2
_LOCALHOST = "127.0.0.1"


def launch(words: Sequence[str], *, count: int, max_restarts: int, hint: str) -> None:
    """Run ``alfa`` with these arguments as several processes that work together.

    They connect like the processes of `torchrun`, but only on localhost: `torchrun` listens on all
    addresses, and unpickles the data that it receives. After a process dies, all are restarted, up
    to `max_restarts` times; `hint` says how to continue after that.
    """
    from torch._C._distributed_c10d import TCPStore

    server = socket.create_server((_LOCALHOST, 0))
    port: int = server.getsockname()[1]
    # The processes are clients of this store, which outlives their restarts.
    store = TCPStore(
        _LOCALHOST, port, is_master=True, wait_for_workers=False, master_listen_fd=server.detach()
    )
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    name_parent()
    environment = {
        "OMP_NUM_THREADS": str(max(1, usable_cpus() // count)),
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        **os.environ,
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": _LOCALHOST,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        # The name by which restarted processes identify the run to resume.
        "TORCHELASTIC_RUN_ID": uuid.uuid4().hex,
    }
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        """Store the first SIGINT or SIGTERM; the second one ends this process at once."""
        if received:
            # The other processes exit after this one.
            os._exit(128 + number)
        received.append(number)

    with signal_handlers(handle):
        for restarts in range(max_restarts + 1):
            codes = _run(words, environment, count, received)
            if received:
                raise typer.Exit(128 + received[0])
            if not any(codes):
                break
            code, failure = _first_failure(codes)
            if restarts == max_restarts or not _may_restart(codes):
                # A process that was not killed has reported its error.
                if code < 0:
                    typer.echo(f"alfa: {failure}; {hint}.", err=True)
                raise typer.Exit(128 - code if code < 0 else code)
            typer.echo(
                f"alfa: {failure}; restarting all processes (restart "
                f"{restarts + 1} of {max_restarts}) from the last checkpoint, if there is one.",
                err=True,
            )
    del store


def _run(
    words: Sequence[str], environment: Mapping[str, str], count: int, received: Sequence[int]
) -> list[int]:
    """Run the processes until all have ended, and return their exit codes.

    When one of them fails, or this process receives a signal, the others are asked to stop.
    """
    command = [sys.executable, "-m", "alfa", *words]
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    children = [subprocess.Popen(command, env={**environment, **rank}) for rank in ranks]
    deadline = float("inf")
    while running := [child for child in children if child.poll() is None]:
        if deadline == float("inf") and (received or any(child.returncode for child in children)):
            deadline = time.monotonic() + _STOP_SECONDS
            for child in running:
                child.send_signal(received[0] if received else signal.SIGTERM)
        if time.monotonic() > deadline:
            for child in running:
                child.kill()
        time.sleep(_POLL_SECONDS)
    return [child.returncode for child in children]


def _may_restart(codes: Sequence[int]) -> bool:
    """Return True if a process has died, and none has reported an error of the user.

    After a failure, SIGTERM ends the other processes, so it is no reason to restart.
    """
    died = [code for code in codes if code in (1, LOST) or (code < 0 and code != -signal.SIGTERM)]
    return bool(died) and _USER_ERROR not in codes


def _first_failure(codes: Sequence[int]) -> tuple[int, str]:
    """Return the exit code of the process whose failure ended the others, and a description."""

    def priority(item: tuple[int, int]) -> tuple[bool, bool, int]:
        # A killed process reports nothing; the others report how that affected them.
        return item[1] == _USER_ERROR, item[1] != -signal.SIGTERM, -item[1]

    number, code = max(((n, code) for n, code in enumerate(codes) if code), key=priority)
    if code < 0:
        return code, f"process {number} was terminated by {signal.Signals(-code).name}"
    return code, f"process {number} exited with code {code}"
