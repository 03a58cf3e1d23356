"""Starting a command as several processes of this machine."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer
from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from alfa.cli.stopping import LOST
from alfa.ops import usable_cpus
from alfa.parent import name_parent

# Seconds that processes have to keep everything after they are asked to stop.
_TO_STOP = 600
# What a process ends with that has said what is wrong.
_REFUSED = 2
_HERE = "127.0.0.1"
_NAME = "alfa-this-machine"


class _ThisMachine(RendezvousHandler):
    """Where the processes of this machine find each other.

    Those of torch listen on all its addresses, and one of them unpickles what it is sent.

    Args:
        run_id: of the launch.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        listening = socket.create_server((_HERE, 0))
        self._port: int = listening.getsockname()[1]
        self._store = TCPStore(
            _HERE,
            self._port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listening.detach(),
        )

    @property
    def use_agent_store(self) -> bool:
        return True

    def get_backend(self) -> str:
        return _NAME

    def next_rendezvous(self) -> RendezvousInfo:
        return RendezvousInfo(self._store, 0, 1, RendezvousStoreInfo(_HERE, self._port))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        return True


def _this_machine(parameters: RendezvousParameters) -> RendezvousHandler:
    return _ThisMachine(parameters.run_id)


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
    # What they tell each other stays on this machine, too.
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    for transport in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{transport}_SOCKET_IFNAME", loopback)
    rendezvous_handler_registry.register(_NAME, _this_machine)
    name_parent()
    # They know by this name that they take the place of others.
    run_id = uuid.uuid4().hex
    with _passing_on():
        for restarts in range(max_restarts + 1):
            try:
                _launch_once(words, count, run_id)
            except ChildFailedError as error:
                codes = {number: failure.exitcode for number, failure in error.failures.items()}
                if restarts == max_restarts or not _may_get_better(list(codes.values())):
                    _leave(codes, hint)
                # A process that was killed could not, and those that it left may be too late.
                typer.echo(
                    f"alfa: {_end_of(*_to_blame(codes))}; all are started anew (restart "
                    f"{restarts + 1} of {max_restarts}), from the last checkpoint if there is one.",
                    err=True,
                )
            except SignalException as stopped:
                raise typer.Exit(128 + stopped.sigval) from None
            else:
                return


def _launch_once(words: Sequence[str], count: int, run_id: str) -> None:
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=run_id,
        rdzv_backend=_NAME,
        local_addr=_HERE,
        # torch would start anew whatever has failed.
        max_restarts=0,
        signals_to_handle="SIGHUP,SIGQUIT",
    )
    elastic_launch(config, sys.executable)("-m", "alfa", *words)


@contextmanager
def _passing_on() -> Iterator[None]:
    """Let processes keep everything after SIGINT or SIGTERM; the second one stops at once."""
    asked: list[int] = []

    def heed(number: int, frame: FrameType | None) -> None:
        if asked:
            # torch would wait for them; without this process, they leave.
            os._exit(128 + number)
        asked.append(number)
        raise SignalException("somebody has asked to stop", sigval=signal.Signals(number))

    before = {n: signal.signal(n, heed) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _may_get_better(codes: Sequence[int]) -> bool:
    """Whether one of the processes has died, and none has said why it cannot go on.

    Where one has ended, torch ends the others by SIGTERM, so that this alone says nothing.
    """
    died = [code for code in codes if code in (1, LOST) or (code < 0 and code != -signal.SIGTERM)]
    return bool(died) and _REFUSED not in codes


def _leave(codes: Mapping[int, int], hint: str) -> NoReturn:
    """End with the code of the process that is to blame.

    Args:
        codes: what processes have ended with, by their numbers.
        hint: how to go on.
    """
    number, code = _to_blame(codes)
    if code >= 0:
        # It has said itself what was wrong.
        raise typer.Exit(code)
    typer.echo(f"alfa: {_end_of(number, code)}; {hint}.", err=True)
    raise typer.Exit(128 - code)


def _to_blame(codes: Mapping[int, int]) -> tuple[int, int]:
    """The process that the others have ended for, and its code."""

    def blame(item: tuple[int, int]) -> tuple[bool, bool, int]:
        # One that was killed could say nothing; the others tell what that has done to them.
        return item[1] == _REFUSED, item[1] != -signal.SIGTERM, -item[1]

    return max(codes.items(), key=blame)


def _end_of(number: int, code: int) -> str:
    if code < 0:
        return f"process {number} was ended by {signal.Signals(-code).name}"
    return f"process {number} has ended with code {code}"
