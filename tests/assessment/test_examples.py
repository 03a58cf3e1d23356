"""Every public name has an example that runs."""

from __future__ import annotations

import doctest
import inspect

import pytest

from alfa import assessment

# Results of functions, which the examples of these functions show
RESULTS = ("Folds", "HeldOut", "Selection")


@pytest.mark.parametrize("name", sorted(set(assessment.__all__) - set(RESULTS)))
def test_the_example_runs(name) -> None:
    part = getattr(assessment, name)
    tests = doctest.DocTestFinder(recurse=False).find(part, name, inspect.getmodule(part))
    assert [example for test in tests for example in test.examples]
    for test in tests:
        assert doctest.DocTestRunner().run(test).failed == 0
