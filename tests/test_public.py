"""The public names are few, and have examples that run."""

from __future__ import annotations

import doctest
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import alfa
from alfa.errors import AlfaWarning

README = Path(__file__).parent.parent / "README.md"


def test_there_are_few_public_names_and_they_resolve() -> None:
    assert len(alfa.__all__) <= 40
    for name in alfa.__all__:
        assert getattr(alfa, name) is not None
    assert set(alfa.__all__) <= set(dir(alfa))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Maml'"):
        alfa.Maml  # noqa: B018


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("name", alfa.__all__)
def test_every_public_name_has_an_example_that_runs(name: str) -> None:
    tests = doctest.DocTestFinder(recurse=False).find(getattr(alfa, name), name)
    examples = [test for test in tests if test.examples]
    assert examples, f"alfa.{name} has no example in its documentation"
    for test in examples:
        results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
        assert results.failed == 0


def test_the_example_of_the_readme_trains_resumes_and_evaluates(
    tmp_path, monkeypatch, capsys
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    (example,) = [block for block in blocks if "Trainer" in block]
    assert len(example.strip().splitlines()) < 40
    # The same program, with fewer and smaller tasks.
    for name, value in {"num_iterations": 4, "validate_every": 2, "filters": 4}.items():
        example, count = re.subn(rf"{name}=\d+", f"{name}={value}", example)
        assert count == 1
    example, count = re.subn(r"(num_(?:val_|test_)?tasks)=\d+", r"\1=2", example)
    assert count == 4
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(alfa, "tune", lambda: None)
    printed = []
    for _ in range(2):
        exec(example, {})
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert re.fullmatch(r"[\d.]+% \+- [\d.]+% over 2 tasks\n", printed[0])
    (predicting,) = [block for block in blocks if 'FewShotClassifier("runs/mine")' in block]
    images = np.random.default_rng(0).integers(0, 256, (10, 28, 28), np.uint8)
    names = {"images": images, "labels": ["a", "b"] * 5, "new_images": images[:3]}
    with warnings.catch_warnings():
        # After so little training, alfa warns that the model is no better than chance.
        warnings.simplefilter("ignore", AlfaWarning)
        exec(predicting, names)
    assert len(names["clf"].predict(images)) == 10
