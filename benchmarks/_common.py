"""What the studies share: running commands, and writing figures into pages."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from alfa import tune
from alfa._io import write_atomic
from alfa.runs import Run


def command(*words: str) -> list[str]:
    """`alfa` with these words, in the Python that runs this."""
    return [sys.executable, "-c", "from alfa.cli.main import main; main()", *words]


def alfa(*words: str) -> str:
    """What a command prints."""
    return subprocess.run(command(*words), check=True, stdout=subprocess.PIPE, text=True).stdout


def figure(test: dict[str, Any]) -> str:
    """An accuracy in percent, with its interval."""
    return f"{100 * test['accuracy']:.2f} +- {100 * test['accuracy_interval']:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown, and an empty one."""
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def write_part(page: Path, script: str, lines: Sequence[str]) -> None:
    """Put lines into the part of a page that a script writes."""
    begin, end = f"<!-- written by benchmarks/{script} report -->", "<!-- end -->"
    text = page.read_text() if page.is_file() else f"{begin}\n{end}\n"
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    write_atomic(page, f"{before}{begin}\n{chr(10).join(lines)}{end}{after}".encode())


def progress(path: Path) -> int:
    """How many iterations of a run are done."""
    run = Run(path)
    if not run.files.exists:
        return 0
    last = run.load_last()
    return 0 if last is None else int(last.progress["iteration"])


def keep(path: Path, to: Path) -> None:
    """All that it takes to go on elsewhere; what is there already stays until all is copied."""
    # The state before the last one is for damaged disks; results of an epoch are for nobody.
    _copy(path, to, ignore=shutil.ignore_patterns(".*", "previous.safetensors", "result-*.json"))


def restore(path: Path, kept: Path) -> None:
    """Go on from what was kept, where a run is not here or not as far."""
    _recover(kept)
    if kept.is_dir() and (not Run(path).files.exists or progress(path) < progress(kept)):
        _copy(kept, path)


def _copy(path: Path, to: Path, **options: Any) -> None:
    """Replace a folder, so that whoever is killed here leaves the old or the new one, whole."""
    fresh, old = to.with_name(f".{to.name}.new"), _aside(to)
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(path, fresh, **options)
    _recover(to)
    shutil.rmtree(old, ignore_errors=True)
    if to.exists():
        to.rename(old)
    fresh.rename(to)
    shutil.rmtree(old, ignore_errors=True)


def _recover(folder: Path) -> None:
    """Put back what was moved aside by somebody who was killed before the new one was there."""
    if _aside(folder).exists() and not folder.exists():
        _aside(folder).rename(folder)


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def choose(doc: str | None, *functions: Callable[..., None]) -> None:
    """Tune the process and call the function named on the command line with the other words."""
    known = {function.__name__: function for function in functions}
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        sys.exit(doc)
    function, words = known[sys.argv[1]], sys.argv[2:]
    try:
        inspect.signature(function).bind(*words)
    except TypeError:
        sys.exit(doc)
    tune()
    function(*words)
