"""`alfa demo`."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from alfa._io import locked, write_atomic
from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli.progress import meter, show_training
from alfa.cli.show import print_json, print_results
from alfa.cli.start import Computing
from alfa.errors import AlfaError, BusyError, ConfigError
from alfa.methods import get_method

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

# Results of Table 8 by method, for 10 shots and 2 hidden layers of 40 units.
PUBLISHED = {"maml": "0.75 +- 0.15", "alfa+maml": "0.62 +- 0.16"}
# Marks a folder as a demo, which the next demo may replace.
MARKER = ".alfa-demo"
# In a worker process: the queue for its progress, and the event that stops it.
_worker: tuple[Queue[Any], Event]


def demo(
    out: Annotated[Path, Option(help="Folder; replaces an earlier demo.")] = Path("runs/demo"),
    iterations: Annotated[int, Option(min=1, help="Outer iterations per run.")] = 10_000,
    seed: Annotated[int, Option(min=0, help="Random seed.")] = 0,
    settings: opts.Set = None,
    as_json: opts.Json = False,
) -> None:
    """Train MAML and ALFA + MAML on few-shot regression in parallel, and compare them.

    Writes a self-contained `report.html`. Takes about two minutes on two cores.

    Examples:

        alfa demo
        alfa demo --iterations 500 --out runs/short-demo
    """
    from alfa.report import demo_page, load

    overrides = [f"outer.num_iterations={iterations}", f"seed={seed}", *(settings or [])]
    compose = partial(lazy.config.compose, "sinusoid", overrides=overrides)
    experiments = {name: compose(method=name) for name in PUBLISHED}
    page = out / "report.html"
    with _locked(out):
        _clear(out)
        write_atomic(out / MARKER, b"")
        _train_in_parallel(experiments, out, quiet=as_json)
        runs = [load.load_run(out / name, get_method(name).title) for name in experiments]
        published = {get_method(name).title: text for name, text in PUBLISHED.items()}
        command = f"alfa demo --iterations {iterations} --seed {seed}"
        command += "".join(f" --set {shlex.quote(setting)}" for setting in settings or [])
        demo_page.write_demo_page(page, runs, published=published, command=command)
    results = {run.title: run.result for run in runs}
    if as_json:
        print_json({**results, "report": str(page)})
    else:
        print_results(results, folder=page, published=published)


def _locked(out: Path) -> AbstractContextManager[None]:
    """Lock a folder against other demos, from before it is cleared until it is complete."""
    folder = out.resolve()
    if not folder.name:
        raise _not_a_demo(out)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # The lock file is next to the folder, whose content is removed.
    return locked(folder.with_name(f".{folder.name}.lock"), busy=_busy(out))


def _busy(out: Path) -> Exception:
    return BusyError(f"another demo is writing to {out}; wait for it, or choose --out.")


def _not_a_demo(out: Path) -> Exception:
    return ConfigError(f"{out} contains other files than a demo; choose another folder with --out.")


def _clear(out: Path) -> None:
    """Remove an earlier demo, and nothing else."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    known = {*PUBLISHED, "report.html", "tasks.png", MARKER}
    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if MARKER not in names or names - known:
        raise _not_a_demo(out)
    # The processes of a killed demo may still be running for a moment.
    if any(lazy.runs.RunFiles(out / name).is_busy for name in PUBLISHED):
        raise _busy(out)
    for path in out.iterdir():
        if path.name in PUBLISHED:
            shutil.rmtree(path)
        # The marker stays, so that an interrupted demo can be replaced.
        elif path.name != MARKER:
            path.unlink()


def _train_in_parallel(
    experiments: dict[str, lazy.config.Experiment], out: Path, *, quiet: bool
) -> None:
    """Train every experiment in a separate process, and show the progress."""
    import concurrent.futures
    import multiprocessing
    import queue

    context = multiprocessing.get_context("spawn")
    updates: Queue[Any] = context.Queue()
    stop = context.Event()
    pool = concurrent.futures.ProcessPoolExecutor(
        len(experiments),
        mp_context=context,
        initializer=_start_worker,
        initargs=(updates, stop, os.getpid()),
    )
    with meter("demo", quiet=quiet) as shown, pool:
        titles = {name: get_method(name).title for name in experiments}
        show = {name: show_training(shown, title) for name, title in titles.items()}
        futures = {name: pool.submit(_train, name, experiments[name], out) for name in experiments}
        try:
            while futures:
                with suppress(queue.Empty):
                    name, progress = updates.get(timeout=0.1)
                    show[name](progress)
                for name in [name for name, future in futures.items() if future.done()]:
                    try:
                        futures.pop(name).result()
                    except (AlfaError, OSError, concurrent.futures.BrokenExecutor) as error:
                        raise AlfaError(f"{titles[name]}: {error}") from None
        finally:
            stop.set()


def _start_worker(updates: Queue[Any], stop: Event, parent: int) -> None:
    global _worker
    _worker = updates, stop
    lazy._runtime.leave_with_parent(parent)
    # Ctrl-C reaches all processes of a terminal; the first process stops the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _train(name: str, experiment: lazy.config.Experiment, out: Path) -> None:
    updates, stop = _worker

    def report(progress: lazy.training.Progress) -> None:
        if progress.record is not None or progress.iteration % 25 == 0:
            updates.put((name, progress))

    Computing(threads=1).set_up(experiment)
    run = lazy.runs.Run.new(out / name, experiment)
    lazy.training.train_run(run, should_stop=stop.is_set, on_progress=report)
