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
from typing import Any

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
# The variables that the programs of the README assume.
ASSUMED = """import numpy as np
images = np.random.default_rng(0).integers(0, 256, (10, 28, 28), np.uint8)
labels, new_images = list("aabbccddee"), images[:3]
"""
_SAVE_IMAGES = """
from pathlib import Path
from PIL import Image
for number, (label, image) in enumerate(zip(labels, images)):
    for folder in (Path("new-classes", label), Path("unsorted")):
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")
"""


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

    def run(program: str, *words: str, until: str | None = None) -> str:
        """Return the standard output; with `until`, stop the program after such a line."""
        command = [str(scripts / program), *words]
        environment = {**os.environ, "PYTHONPATH": ""}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, cwd=work, env=environment, text=True, **pipes) as process:
            if until is not None:
                assert process.stdout is not None
                line = next(line for line in process.stdout if until in line)
                process.terminate()
                return line
            out, err = process.communicate()
        assert process.returncode == 0, err
        return out

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


def test_the_programs_run(run: Run) -> None:
    programs = re.findall(r"^```python\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    assert len(programs) == 3
    program = "\n".join([ASSUMED, *programs, "print(len(clf.predict(new_images)))"])
    # The same programs, with fewer and smaller tasks.
    for name, value in {"num_iterations": 4, "validate_every": 2, "filters": 4}.items():
        program = re.sub(rf"{name}=\d+", f"{name}={value}", program)
    program = re.sub(r"(num_(?:val_|test_)?tasks)=\d+", r"\1=2", program)
    assert run("python", "-c", program).endswith("over 2 tasks\n3\n")


def test_the_commands_run(run: Run) -> None:
    commands = re.findall(r"^alfa (train|compare) (.*?)\s*(?:#.*)?$", README, flags=re.MULTILINE)
    assert len(commands) == 3
    for name, words in commands:
        options = SHORT if name == "train" else ("--threads", "1")
        assert run("alfa", name, *words.split(), *options)


def test_the_commands_for_images_run(run: Run) -> None:
    text = " ".join(README.split())
    assert "alfa adapt --support new-classes --predict unsorted ```" in text
    assert "`alfa serve strokes`" in text
    run("python", "-c", f"{ASSUMED}{_SAVE_IMAGES}")
    run("alfa", "adapt", "--support", "new-classes", "--predict", "unsorted")
    assert "http://127.0.0.1" in run("alfa", "serve", "strokes", "--port", "0", until="http")
