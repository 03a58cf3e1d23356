"""The page of a run whose method takes no inner steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from alfa.config import compose
from alfa.errors import ConfigError
from alfa.runs import Run
from alfa.serve import Model
from alfa.serve._html import render
from alfa.serve._session import Session


def saved(folder: Path, method: str) -> Path:
    """Save an untrained run of a method."""
    overrides = ["tasks.size=16", "model.filters=4"]
    run = Run.new(folder / method, compose("strokes", method=method, overrides=overrides))
    learner, tasks, _ = run.build("cpu")
    return Run.save(folder / method, learner, tasks).path


@pytest.mark.parametrize("method", ["protonet", "snail"])
def test_the_page_shows_a_loss_and_no_rates(tmp_path: Path, pictures, method) -> None:
    model = Model.open(saved(tmp_path, method))
    assert (model.max_classes > 5) == (method == "protonet")
    session = Session(model)
    session.add_class()
    for each, files in zip(session.classes, pictures, strict=True):
        session.add_uploads(each.number, [model.receive("x.png", file) for file in files[:3]])
    session.learn()
    assert "so there are no rates" in render("rates", session)
    learned = render("learned", session)
    assert "of new pictures right" in learned
    assert "in 0 steps" not in learned
    assert "after each" not in learned


def test_a_transductive_head_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="classifies the queries of a task together"):
        Model.open(saved(tmp_path, "tpn"))
