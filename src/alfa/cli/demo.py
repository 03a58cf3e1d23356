"""`alfa demo`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alfa.cli.train import Json

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

    from alfa.config import Experiment
    from alfa.train import Progress

# Table 8, 10 shots, 2 hidden layers of 40 units
METHODS = {"sinusoid-maml": "MAML", "sinusoid-alfa": "ALFA + MAML"}
# Says that a folder is a demo's, and may be replaced by the next one.
MARK = ".alfa-demo"
PUBLISHED = {"MAML": "0.75 +- 0.15", "ALFA + MAML": "0.62 +- 0.16"}


def demo(
    out: Annotated[
        Path, typer.Option(help="Where the two runs and the report go; replaced if it is there.")
    ] = Path("runs/demo"),
    iterations: Annotated[int, typer.Option(min=1, help="Outer iterations of each.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Decides everything random.")] = 0,
    as_json: Json = False,
) -> None:
    """Train MAML and ALFA + MAML on few-shot regression side by side, and compare them.

    Writes one self-contained `report.html`. Takes about two minutes on two cores.

    Examples:

        alfa demo

        alfa demo --iterations 500 --out runs/short-demo
    """
    from alfa.cli.show import result_table
    from alfa.config import load_experiment
    from alfa.report import load_run, write_demo_page
    from alfa.train.files import write_atomic

    overrides = [f"outer.num_iterations={iterations}", f"seed={seed}"]
    experiments = {name: load_experiment(name, overrides) for name in METHODS}
    page = out / "report.html"
    with _alone(out):
        _clear(out)
        write_atomic(out / MARK, b"")
        _train_side_by_side(experiments, out, quiet=as_json)
        runs = [load_run(out / name, title) for name, title in METHODS.items()]
        command = f"alfa demo --iterations {iterations} --seed {seed}"
        write_demo_page(page, runs, published=PUBLISHED, command=command)
    results = {run.title: run.result for run in runs}
    if as_json:
        typer.echo(json.dumps({**results, "report": str(page)}, indent=2))
    else:
        result_table(results, folder=page, published=PUBLISHED)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keep other demos out of a folder, from before it is cleared until it is complete.

    Raises:
        BusyError: another demo is being made there.
    """
    from alfa.lock import held

    place = out.resolve()
    if not place.name:
        raise _no_demo(out)
    place.parent.mkdir(parents=True, exist_ok=True)
    # Beside it, as all that is in the folder is removed.
    lock = place.with_name(f".{place.name}.lock")
    with held(lock, otherwise=_busy(out)):
        yield


def _busy(out: Path) -> Exception:
    from alfa.errors import BusyError

    return BusyError(f"another demo is being made in {out}; wait for it, or choose --out.")


def _clear(out: Path) -> None:
    """Make way for a new demo, without ever removing what is not one."""
    import shutil

    from alfa.train import Run

    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    ours = {*METHODS, "report.html", "tasks.png", MARK}
    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if MARK not in names or names - ours:
        raise _no_demo(out)
    # Processes of one that was killed may take a moment to notice.
    if any(Run(out / name).is_busy for name in METHODS):
        raise _busy(out)
    for path in out.iterdir():
        if path.name in METHODS:
            shutil.rmtree(path)
        # What is left, if this is stopped, must still be known as a demo.
        elif path.name != MARK:
            path.unlink()


def _no_demo(out: Path) -> Exception:
    from alfa.errors import ConfigError

    return ConfigError(
        f"{out} holds something other than a demo; choose another folder with --out."
    )


def _train_side_by_side(experiments: dict[str, Experiment], out: Path, *, quiet: bool) -> None:
    """Train every experiment in a process of its own, and show how far each has come."""
    import multiprocessing

    from alfa.cli.progress import meter, show_training
    from alfa.errors import AlfaError

    context = multiprocessing.get_context("spawn")
    queue: Queue[Any] = context.Queue()
    workers = {
        name: context.Process(
            target=_work, args=(name, experiment, out / name, queue, os.getpid()), daemon=True
        )
        for name, experiment in experiments.items()
    }
    try:
        with meter("demo", quiet=quiet) as shown:
            show = {name: show_training(shown, METHODS[name]) for name in experiments}
            for worker in workers.values():
                worker.start()
            waiting = set(workers)
            while waiting:
                name, progress, error = _next(queue, {n: workers[n] for n in waiting})
                if error is not None:
                    raise AlfaError(f"{METHODS[name]}: {error}")
                if progress is None:
                    waiting.remove(name)
                else:
                    show[name](progress)
    finally:
        for worker in workers.values():
            if worker.is_alive():
                worker.join(timeout=1)
                worker.terminate()


def _next(queue: Queue[Any], workers: dict[str, Any]) -> tuple[str, Progress | None, str | None]:
    """The next message, or the news that a worker died without one."""
    from queue import Empty

    while True:
        try:
            message: tuple[str, Progress | None, str | None] = queue.get(timeout=1)
            return message
        except Empty:
            for name, worker in workers.items():
                if not worker.is_alive() and queue.empty():
                    return name, None, f"its process ended with code {worker.exitcode}."


def _work(name: str, experiment: Experiment, path: Path, queue: Queue[Any], parent: int) -> None:
    import signal

    from alfa.cli.start import set_up
    from alfa.errors import AlfaError
    from alfa.parent import leave_with_parent
    from alfa.train import train

    # One that was killed ends nobody.
    leave_with_parent(parent)
    # Ctrl-C reaches all processes of a terminal; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def tell(progress: Progress) -> None:
        if progress.record is not None or progress.iteration % 25 == 0:
            queue.put((name, progress, None))

    try:
        set_up(experiment, device="cpu", threads=1)
        train(experiment, path, on_progress=tell)
        queue.put((name, None, None))
    except (AlfaError, OSError) as error:
        queue.put((name, None, str(error)))
