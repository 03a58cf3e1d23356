"""The content of the page, without a browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alfa.serve import Model
from alfa.serve._actions import Actions
from alfa.serve._model import AdaptedModel
from alfa.serve._server import _SETTINGS, _call_in_event_loop
from alfa.serve._session import Session, Sessions
from alfa.serve._transfers import Transfers

gr = pytest.importorskip("gradio", reason="the page needs gradio: pip install 'alfa[serve]'")

RING = [[[0.2, 0.2], [0.8, 0.2], [0.8, 0.8], [0.2, 0.8], [0.2, 0.2]]]
# Indices of the outputs of the events `learn` and `keep`.
LEARN_NOTICE, CLASSES, ANSWER, TRY_NOTICE = 0, 1, 6, 7
KEEP_NOTICE, DOWNLOAD = 0, 1


@pytest.fixture
def ask(model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Create a page and trigger events on it."""
    for name, value in (_SETTINGS | {"GRADIO_TEMP_DIR": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    from alfa.serve._page import Page

    def make(actions: Actions) -> Callable[..., list[Any]]:
        page = _call_in_event_loop(lambda: Page(model, actions).blocks)
        events = {event.api_name: event.fn for event in page.fns.values()}

        def act(event: str, data: Any = None, *, who: str = "me") -> list[Any]:
            request = gr.Request(session_hash=who)
            given = (request,) if data is None else (request, gr.EventData(None, data))
            return events[event](*given)

        return act

    return make


@pytest.fixture
def actions(make_session: Callable[[], Session]) -> Actions:
    return Actions(Sessions(make_session, capacity=1), Transfers())


def _teach(actions: Actions, who: str) -> Session:
    session = actions.sessions.open(who)
    for each in session.classes:
        actions.teach(who, {"do": "draw", "class": each.number, "strokes": RING})
    return session


def test_a_full_page_reports_it_for_every_action(ask: Any, actions: Actions) -> None:
    act = ask(actions)
    actions.sessions.open("other")
    for event, data in (("teach", {"do": "add"}), ("learn", None), ("keep", {"do": "save"})):
        notice, *others = act(event, data)
        assert "All 1 sessions of this page are in use" in notice
        assert len(others) >= 6
    # The page shows no classes of other users, and enables the buttons again.
    assert others[0]["number"] > 0
    assert all(other == gr.skip() for other in others[1:])
    assert actions.sessions.get("me") is None


def test_leaving_while_learning_closes_the_session(
    ask: Any, actions: Actions, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = ask(actions)
    _teach(actions, "me")
    true = Session.learn

    def learn(self: Session) -> Any:
        actions.leave("me")
        return true(self)

    monkeypatch.setattr(Session, "learn", learn)
    assert act("learn")[CLASSES] == gr.skip()
    assert len(actions.sessions) == 0


def test_learning_removes_earlier_predictions(ask: Any, actions: Actions) -> None:
    act = ask(actions)
    shown = act("learn")
    assert "Add a few pictures to each class first." in shown[LEARN_NOTICE]
    assert "Add examples and press Learn first" in shown[ANSWER]
    assert shown[TRY_NOTICE] == gr.skip()
    _teach(actions, "me")
    for _ in range(2):
        shown = act("learn")
        assert "Show the model a new picture" in shown[ANSWER]
        assert shown[TRY_NOTICE] == ""
        notice, answer = act("try_1", {"do": "draw", "strokes": RING})
        assert not notice
        assert "alfa-odd" in answer
        # Predictions remain while examples change.
        assert act("teach", {"do": "draw", "strokes": RING})[ANSWER] == gr.skip()


def test_unexpected_errors_enable_the_buttons_again(
    ask: Any,
    make_session: Callable[[], Session],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def to_onnx(adapted: AdaptedModel, names: Any) -> bytes:
        raise RuntimeError("no such operation\nand much more")

    monkeypatch.setattr(AdaptedModel, "to_onnx", to_onnx)
    actions = Actions(Sessions(make_session), Transfers())
    act = ask(actions)
    _teach(actions, "me")
    actions.learn("me")
    first = act("keep", {"do": "export"})
    told = "An unexpected error occurred (RuntimeError: no such operation); see the server"
    assert told in first[KEEP_NOTICE]
    assert "and much more" in capsys.readouterr().err
    second = act("keep", {"do": "export"})
    assert first[DOWNLOAD] == {"token": "", "name": "", "number": 1}
    assert second[DOWNLOAD]["number"] == 2


def test_the_pad_requires_a_dataset_with_known_ink(model: Model, ask: Any) -> None:
    from alfa.serve._page import Page

    def names(served: Model) -> list[str]:
        actions = Actions(Sessions(lambda: Session(served)), Transfers())
        page = _call_in_event_loop(lambda: Page(served, actions).blocks)
        return [block.elem_id for block in page.blocks.values() if hasattr(block, "elem_id")]

    assert {"teach-pad", "try-pad"} <= set(names(model))
    assert not {"teach-pad", "try-pad"} & set(names(replace(model, dataset="scans")))


def test_predictions_made_since_learning_remain(
    ask: Any, actions: Actions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user draws before the page shows the result of Learn."""
    act = ask(actions)
    _teach(actions, "me")
    tried: list[str] = []
    true = Actions.learn

    def learn(self: Actions, who: str | None) -> Any:
        outcome = true(self, who)
        tried.append(act("try_1", {"do": "draw", "strokes": RING})[1])
        return outcome

    monkeypatch.setattr(Actions, "learn", learn)
    untried = act("learn")[ANSWER]

    def turn(markup: str) -> int:
        return int(re.findall('data-turn="([0-9]+)"', markup)[0])

    # The browser shows the state with the later turn.
    assert turn(untried) < turn(tried[0])


def test_the_page_shows_the_limits(model: Model, ask: Any, actions: Actions) -> None:
    from alfa.serve._page import Page

    page = _call_in_event_loop(lambda: Page(model, actions).blocks)
    text = " ".join(str(getattr(block, "value", "")) for block in page.blocks.values())
    assert "Create 2 to 20 classes and add a few pictures to each" in text
    assert "the limit is 50 per class and 200 in total" in text
    assert "up to 10 MB each" in text
