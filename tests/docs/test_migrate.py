"""The programs of the migration guide compute the same."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from alfa import Sinusoids

PAGE = (Path(__file__).parents[2] / "docs" / "migrate.md").read_text()


def _program(language: str, contains: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (program,) = [block for block in blocks if contains in block]
    return program


def test_the_program_for_higher_trains_the_same_weights_as_ours() -> None:
    pytest.importorskip("higher", reason="the package higher is not installed")
    torch.manual_seed(0)
    ours: dict[str, Any] = {}
    exec(_program("python", "Learner("), ours)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 1))
    theirs: dict[str, Any] = {"tasks": Sinusoids(num_support=10), "model": model}
    with warnings.catch_warnings():
        # higher uses functions that torch has deprecated.
        warnings.simplefilter("ignore")
        exec(_program("py", "import higher"), theirs)
    for name, parameter in ours["model"].named_parameters():
        torch.testing.assert_close(theirs["model"].get_parameter(name), parameter)


@pytest.mark.parametrize("library", ["learn2learn", "higher", "torchmeta"])
def test_the_other_programs_are_valid_python_of_the_same_loop(library: str) -> None:
    program = _program("py", library)
    compile(program, library, "exec")
    assert "tasks.episode(4 * iteration, num_tasks=4)" in program
    assert "lr=0.001" in program
