"""`alfa demo`."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alfa.cli._options import Json, Set

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

    from alfa.config import Experiment
    from alfa.training import Progress

# The figures of Table 8 for 10 shots and 2 hidden layers of 40 units, by method.
PUBLISHED = {"maml": "0.75 +- 0.15", "alfa+maml": "0.62 +- 0.16"}
# A folder with this file is a demo, and may be replaced by the next one.
MARK = ".alfa-demo"
# In a worker, the queue for its progress and the event that stops it.
_worker: tuple[Queue[Any], Event]


def demo(
    out: Annotated[
        Path, typer.Option(help="The folder of the two runs and the report; an old demo goes.")
    ] = Path("runs/demo"),
    iterations: Annotated[int, typer.Option(min=1, help="Outer iterations of each.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Train MAML and ALFA + MAML on few-shot regression side by side, and compare them.

    Writes one self-contained `report.html`. Takes about two minutes on two cores.

    Examples:

        alfa demo

        alfa demo --iterations 500 --out runs/short-demo
    """
    from alfa._io import write_atomic
    from alfa.cli.show import result_table
    from alfa.config import compose
    from alfa.methods import get_method
    from alfa.report.demo_page import write_demo_page
    from alfa.report.load import load_run

    overrides = [f"outer.num_iterations={iterations}", f"seed={seed}", *(settings or [])]
    experiments = {
        name: compose("sinusoid", method=name, overrides=overrides) for name in PUBLISHED
    }
    page = out / "report.html"
    with _locked(out):
        _clear(out)
        write_atomic(out / MARK, b"")
        _train_side_by_side(experiments, out, quiet=as_json)
        runs = [load_run(out / name, get_method(name).title) for name in experiments]
        published = {get_method(name).title: text for name, text in PUBLISHED.items()}
        command = f"alfa demo --iterations {iterations} --seed {seed}"
        command += "".join(f" --set {shlex.quote(setting)}" for setting in settings or [])
        write_demo_page(page, runs, published=published, command=command)
    results = {run.title: run.result for run in runs}
    if as_json:
        typer.echo(json.dumps({**results, "report": str(page)}, indent=2))
    else:
        result_table(results, folder=page, published=published)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Keep other demos out of a folder, from before it is cleared until it is complete."""
    from alfa._io import locked

    place = out.resolve()
    if not place.name:
        raise _not_a_demo(out)
    place.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, whose content is removed.
    with locked(place.with_name(f".{place.name}.lock"), busy=_busy(out)):
        yield


def _busy(out: Path) -> Exception:
    from alfa.errors import BusyError

    return BusyError(f"another demo is being made in {out}; wait for it, or choose --out.")


def _not_a_demo(out: Path) -> Exception:
    from alfa.errors import ConfigError

    return ConfigError(
        f"{out} holds something other than a demo; choose another folder with --out."
    )


def _clear(out: Path) -> None:
    """Remove an earlier demo, and nothing else."""
    import shutil

    from alfa.runs import RunFiles

    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    known = {*PUBLISHED, "report.html", "tasks.png", MARK}
    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if MARK not in names or names - known:
        raise _not_a_demo(out)
    # The processes of a killed demo may take a moment to notice.
    if any(RunFiles(out / name).is_busy for name in PUBLISHED):
        raise _busy(out)
    for path in out.iterdir():
        if path.name in PUBLISHED:
            shutil.rmtree(path)
        # If this is interrupted, the rest must still be recognized as a demo.
        elif path.name != MARK:
            path.unlink()


def _train_side_by_side(experiments: dict[str, Experiment], out: Path, *, quiet: bool) -> None:
    """Train every experiment in a process of its own, and show the progress."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from queue import Empty

    from alfa.cli.progress import meter, show_training
    from alfa.errors import AlfaError
    from alfa.methods import get_method

    context = multiprocessing.get_context("spawn")
    queue: Queue[Any] = context.Queue()
    stop = context.Event()
    shared = (queue, stop, os.getpid())
    pool = ProcessPoolExecutor(
        len(experiments), mp_context=context, initializer=_start_worker, initargs=shared
    )
    with meter("demo", quiet=quiet) as shown, pool:
        titles = {name: get_method(name).title for name in experiments}
        show = {name: show_training(shown, title) for name, title in titles.items()}
        futures = {name: pool.submit(_train, name, experiments[name], out) for name in experiments}
        try:
            while futures:
                with suppress(Empty):
                    name, progress = queue.get(timeout=0.1)
                    show[name](progress)
                for name in [name for name, future in futures.items() if future.done()]:
                    try:
                        futures.pop(name).result()
                    except (AlfaError, OSError, BrokenExecutor) as error:
                        raise AlfaError(f"{titles[name]}: {error}") from None
        finally:
            stop.set()


def _start_worker(queue: Queue[Any], stop: Event, parent: int) -> None:
    import signal

    from alfa._runtime import leave_with_parent

    global _worker
    _worker = queue, stop
    leave_with_parent(parent)
    # Ctrl-C reaches all processes of a terminal; the first one stops the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _train(name: str, experiment: Experiment, out: Path) -> None:
    from alfa.cli.start import set_up
    from alfa.runs import Run
    from alfa.training import train_run

    queue, stop = _worker

    def report(progress: Progress) -> None:
        if progress.record is not None or progress.iteration % 25 == 0:
            queue.put((name, progress))

    set_up(experiment, device="cpu", threads=1)
    train_run(Run.new(out / name, experiment), should_stop=stop.is_set, on_progress=report)
