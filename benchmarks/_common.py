"""Helpers of the benchmarks: commands, run folders, and generated parts of pages."""

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
    """Return an `alfa` command that uses the current Python."""
    return [sys.executable, "-c", "from alfa.cli.main import main; main()", *words]


def alfa(*words: str) -> str:
    """Run an `alfa` command and return its output."""
    return subprocess.run(command(*words), check=True, stdout=subprocess.PIPE, text=True).stdout


def figure(test: dict[str, Any]) -> str:
    """Format an accuracy in percent with its interval."""
    return f"{100 * test['accuracy']:.2f} +- {100 * test['accuracy_interval']:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table, followed by an empty line."""
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def write_part(page: Path, script: str, lines: Sequence[str]) -> None:
    """Replace the part of a page that a script generates."""
    begin, end = f"<!-- written by benchmarks/{script} report -->", "<!-- end -->"
    text = page.read_text() if page.is_file() else f"{begin}\n{end}\n"
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    write_atomic(page, f"{before}{begin}\n{chr(10).join(lines)}{end}{after}".encode())


def progress(path: Path) -> int:
    """Return the number of completed iterations of a run."""
    run = Run(path)
    if not run.files.exists:
        return 0
    last = run.load_last()
    return 0 if last is None else int(last.progress["iteration"])


def keep(path: Path, to: Path) -> None:
    """Copy the files that are needed to resume a run, replacing an older copy atomically."""
    # The previous checkpoint only protects against damaged disks, and nothing reads the results
    # of single epochs.
    _copy(path, to, ignore=shutil.ignore_patterns(".*", "previous.safetensors", "result-*.json"))


def restore(path: Path, kept: Path) -> None:
    """Replace a run by its kept copy if the run is missing or has fewer iterations."""
    _recover(kept)
    if kept.is_dir() and (not Run(path).files.exists or progress(path) < progress(kept)):
        _copy(kept, path)


def _copy(path: Path, to: Path, **options: Any) -> None:
    """Replace a folder; a kill leaves either the old or the new folder complete."""
    fresh, old = to.with_name(f".{to.name}.new"), _backup(to)
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(path, fresh, **options)
    _recover(to)
    shutil.rmtree(old, ignore_errors=True)
    if to.exists():
        to.rename(old)
    fresh.rename(to)
    shutil.rmtree(old, ignore_errors=True)


def _recover(folder: Path) -> None:
    """Restore the backup if a process was killed between the two renames."""
    if _backup(folder).exists() and not folder.exists():
        _backup(folder).rename(folder)


def _backup(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def choose(doc: str | None, *functions: Callable[..., None]) -> None:
    """Tune the process and call the function named on the command line."""
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
