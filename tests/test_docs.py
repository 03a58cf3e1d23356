"""The documentation: its examples run, its commands are understood, its links lead somewhere."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from alfa.cli.main import app
from alfa.testing import small_run

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")])
# Words that stand for something in a command of the documentation.
_STANDS_FOR = re.compile(r"\b[A-Z][A-Z_]+\b")

# What a page supposes that its reader has.
_YOURS = {
    "images": np.arange(6 * 64, dtype=np.uint8).reshape(6, 8, 8),
    "labels": ["a", "a", "a", "b", "b", "b"],
    "new_images": np.zeros((2, 8, 8), np.uint8),
}


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE
    )


def _commands(page: Path) -> list[list[str]]:
    """Words of every command of ours on a page."""
    found = []
    for block in _blocks(page, "(?:sh|)"):
        for line in block.replace("\\\n", " ").splitlines():
            line = line.partition("  #")[0].strip()
            if "torchrun" not in line and re.match(r"(\.venv/bin/)?alfa ", line):
                found.append(shlex.split(line)[1:])
    return found


def _read(words: list[str]) -> None:
    """Read a command to its last option, and do not call it."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words[0] in command.commands, f"alfa has no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    assert command.make_context(command.name, [w for w in words if w != "..."]) is not None


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if _blocks(p, "python")], ids=_name)
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALFA_DATA", str(tmp_path / "data"))
    # What trains takes long, and has a test of its own.
    blocks = [block for block in _blocks(page, "python") if "Trainer(" not in block]
    for run in {name for block in blocks for name in re.findall(r'"(runs/[\w-]+)"', block)}:
        # In place of one that takes minutes to train.
        small_run(tmp_path).rename(_made(tmp_path / run))
    names: dict[str, Any] = {"__name__": "page", **_YOURS}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{_name(page)}, block {number}", "exec"), names)


@pytest.mark.parametrize("page", [p for p in PAGES if _commands(p)], ids=_name)
def test_the_commands_of_a_page_are_understood(page: Path) -> None:
    for words in _commands(page):
        if any(_STANDS_FOR.search(word) for word in words):
            # Numbers may stand there as well, of which a word is none.
            words = [_STANDS_FOR.sub("1", word) for word in words]
        _read(words)


def test_the_reference_is_what_the_documentation_of_the_names_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    for name, module in (("api.md", "api"), ("config.md", "_config_page")):
        told = f"docs/{name} is not what `python benchmarks/api.py` would write"
        assert (ROOT / "docs" / name).read_text() == importlib.import_module(module).page(), told


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{target} is not there"


def test_what_is_said_to_hold_the_promises_of_security_is_there() -> None:
    named = set(re.findall(r"\btest_\w+\.py", (ROOT / "SECURITY.md").read_text()))
    assert named
    assert named <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}


def test_the_architecture_lists_files_that_exist_once_on_each_path() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    paths = [re.findall(r"^\d+\. `(.+)`$", part, flags=re.M) for part in page.split("\n### ")[1:]]
    assert len(paths) == 5
    for files in paths:
        assert len(files) == len(set(files))
        assert [file for file in files if not (ROOT / "src" / "alfa" / file).is_file()] == []


def test_the_architecture_lists_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page[page.index("| package |") : page.index("## Files on the path")]
    packages = {path.parent.name for path in (ROOT / "src" / "alfa").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"`(\w+)`", table))
