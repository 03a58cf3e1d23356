"""The public names: few, documented with an example that runs, and quick to import."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import alfa

README = Path(__file__).parent.parent / "README.md"


def test_there_are_few_public_names_and_they_resolve() -> None:
    assert len(alfa.__all__) <= 40
    for name in alfa.__all__:
        assert getattr(alfa, name) is not None
    assert set(alfa.__all__) <= set(dir(alfa))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Maml'"):
        alfa.Maml  # noqa: B018


@pytest.mark.parametrize("name", alfa.__all__)
def test_every_public_name_has_an_example_that_runs(name: str) -> None:
    tests = doctest.DocTestFinder(recurse=False).find(getattr(alfa, name), name)
    examples = [test for test in tests if test.examples]
    assert examples, f"alfa.{name} has no example in its documentation"
    for test in examples:
        # Examples register parts and draw random numbers; neither may leak into other tests.
        results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
        assert results.failed == 0


def test_the_example_of_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    (example,) = [block for block in blocks if "Learner" in block]
    assert len(example.strip().splitlines()) <= 15
    names: dict[str, object] = {}
    exec(example, names)
    assert names["query_losses"].shape == (4,)  # type: ignore[attr-defined]
