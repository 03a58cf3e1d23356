"""The wheel, installed outside the clone, runs the commands and examples of the README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
# Options that shorten training; the examples are the README's otherwise.
SHORT = (
    *("--set", "outer.num_iterations=2", "--set", "outer.validate_every=1"),
    *("--set", "outer.num_val_tasks=2", "--set", "test.num_tasks=4"),
    *("--set", "model.filters=8", "--threads", "1"),
)
Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a program of a fresh environment that has the wheel and the dependencies only."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    venv.create(environment)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / "python"
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout[:-1])
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    subprocess.run([*install, "--no-index", str(wheel)], check=True, capture_output=True)
    # Packages of this environment, without its editable installation of alfa.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    # Without numba, torch replaces the kernels, whose compilation takes a minute.
    (packages / "numba.py").write_text("raise ModuleNotFoundError")
    work = folder / "work"
    work.mkdir()

    def run(program: str, *words: str) -> str:
        done = subprocess.run(
            [str(scripts / program), *words],
            cwd=work,
            env={**os.environ, "PYTHONPATH": ""},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_it_is_not_the_clone(run: Run) -> None:
    assert str(ROOT) not in run("python", "-c", "import alfa; print(alfa.__file__)")


def test_the_demo_runs(run: Run) -> None:
    assert "ALFA + MAML" in run("alfa", "demo", "--iterations", "20")


def test_the_models_are_included(run: Run) -> None:
    listed = run("alfa", "models")
    assert "cifar-fs" in listed
    assert "strokes" in listed
    assert "CIFAR-100" in run("alfa", "models", "show", "cifar-fs")


def test_the_python_example_runs(run: Run) -> None:
    programs = re.findall(r"^```python\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    (program,) = [program for program in programs if '"cifar-fs"' in program]
    images = "import numpy as np\n" + (
        "images = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), np.uint8)\n"
        "labels = list('aabbccddee')\nnew_images = images[:3]\n"
    )
    assert run("python", "-c", f"{images}{program}\nprint(len(clf.predict(new_images)))") == "3\n"


def test_the_commands_run(run: Run) -> None:
    commands = re.findall(r"^alfa (train|compare) (.*?)\s*(?:#.*)?$", README, flags=re.MULTILINE)
    assert len(commands) == 3
    for name, words in commands:
        options = SHORT if name == "train" else ("--threads", "1")
        assert run("alfa", name, *words.split(), *options)
