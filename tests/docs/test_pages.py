"""The documentation: its examples run, its commands parse, and its links resolve."""

from __future__ import annotations

import re
import shlex
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer

from alfa.cli.main import app, main
from alfa.errors import AlfaWarning
from alfa.testing import small_run

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")])
# Pages whose first example runs as it is; the others need the user's images or start a server.
RUNNABLE = ("datasets", "evaluate", "methods", "models", "reproduce", "scale", "train")
# Options that shorten training.
SHORT = (
    *("--set", "outer.num_iterations=2", "--set", "outer.validate_every=1"),
    *("--set", "outer.num_val_tasks=2", "--set", "test.num_tasks=4"),
    *("--set", "model.filters=4", "--threads", "1"),
)
# Placeholders in the commands of the documentation.
_PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]+\b")

# Variables that the examples assume.
_ASSUMED = {
    "images": np.arange(6 * 64, dtype=np.uint8).reshape(6, 8, 8),
    "labels": ["a", "a", "a", "b", "b", "b"],
    "new_images": np.zeros((2, 8, 8), np.uint8),
}


def _blocks(page: Path, *languages: str) -> list[str]:
    """Return the code blocks of a page in some languages, without their indentation."""
    blocks = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(code) for _, language, code in blocks if language in languages]


def _commands(page: Path) -> list[list[str]]:
    """Return the words of every `alfa` command on a page."""
    found = []
    for block in _blocks(page, "", "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            # A command may follow the environment variables that it needs.
            line = re.sub(r"^([A-Z_]+=(\$\([^)]*\)|\S+) )+", "", line.partition("  #")[0].strip())
            if "torchrun" not in line and re.match(r"(\.venv/bin/)?alfa ", line):
                found.append(shlex.split(line)[1:])
    return found


def _parse(words: list[str]) -> None:
    """Parse a command without running it."""
    command: Any = typer.main.get_command(app)
    # A group such as `alfa models` may run without a subcommand.
    while hasattr(command, "commands") and (words or not command.invoke_without_command):
        assert words[0] in command.commands, f"alfa has no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    assert command.make_context(command.name, [w for w in words if w != "..."]) is not None


def _with_parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.usefixtures("registries")
# tests/serve/test_docs.py runs the examples that need a server.
@pytest.mark.parametrize(
    "page", [p for p in PAGES if _blocks(p, "python") and p.name != "serve.md"], ids=_name
)
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALFA_DATA", str(tmp_path / "data"))
    # Training takes long; test_public.py runs that example.
    blocks = [block for block in _blocks(page, "python") if "Trainer(" not in block]
    text = "".join(blocks)
    saved = set(re.findall(r'Run\.save\("(runs/[\w-]+)"', text))
    for run in set(re.findall(r'"(runs/[\w-]+)"', text)) - saved:
        # Instead of a run that takes minutes to train.
        small_run(tmp_path).rename(_with_parent(tmp_path / run))
    names: dict[str, Any] = {"__name__": "page", **_ASSUMED}
    with warnings.catch_warnings():
        # alfa warns that models are no better than chance on random images.
        warnings.simplefilter("ignore", AlfaWarning)
        for number, block in enumerate(blocks):
            exec(compile(block, f"{_name(page)}, block {number}", "exec"), names)


@pytest.mark.parametrize("page", [p for p in PAGES if _commands(p)], ids=_name)
def test_the_commands_of_a_page_parse(page: Path) -> None:
    for words in _commands(page):
        if any(_PLACEHOLDER.search(word) for word in words):
            # Some placeholders stand for numbers.
            words = [_PLACEHOLDER.sub("1", word) for word in words]
        _parse(words)


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_first_example_of_a_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    page = ROOT / "docs" / f"{name}.md"
    first = _blocks(page, "", "sh")[0]
    for line in first.strip().splitlines():
        words = shlex.split(line)[1:]
        options = SHORT if words[0] == "train" else ()
        with pytest.raises(SystemExit) as caught:
            main([*words, *options])
        assert caught.value.code == 0, line
    torch.set_num_threads(threads)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_links_of_a_page_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{target} does not exist"


def test_the_tests_named_in_the_security_policy_exist() -> None:
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
