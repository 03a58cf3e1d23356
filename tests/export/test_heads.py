"""Export of heads that are no linear layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from alfa import FewShotClassifier
from alfa.config import compose
from alfa.export import make_onnx
from alfa.runs import Run

SMALL = {"relation": ["head.filters=4"], "snail": ["head.filters=4"], "matching-fce": []}


@pytest.mark.filterwarnings("ignore:the support loss is")
@pytest.mark.parametrize("name", SMALL)
def test_probabilities_are_those_of_torch(tmp_path: Path, characters, name: str) -> None:
    small = ["tasks.size=16", "model.filters=4", "model.num_blocks=2", *SMALL[name]]
    run = Run.new(tmp_path / "run", compose("strokes", method=name, overrides=small))
    learner, tasks, _ = run.build("cpu")
    Run.save(run.path, learner, tasks)
    images, labels = characters
    # The temperature of an untrained model would amplify the rounding.
    exported = make_onnx(FewShotClassifier(run.path, num_folds=0).fit(images, labels))
    assert exported.max_difference < 1e-5
