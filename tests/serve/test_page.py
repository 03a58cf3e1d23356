"""What the page shows, without a browser."""

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
from alfa.serve._session import Session
from alfa.serve._sessions import Sessions
from alfa.serve._transfers import Transfers

gr = pytest.importorskip("gradio", reason="the page needs gradio: pip install 'alfa[serve]'")

RING = [[[0.2, 0.2], [0.8, 0.2], [0.8, 0.8], [0.2, 0.8], [0.2, 0.2]]]
# Where each answer to Learn and to Keep has what.
LEARN_NOTICE, CLASSES, ANSWER, TRY_NOTICE = 0, 1, 6, 7
KEEP_NOTICE, DELIVERY = 0, 1


@pytest.fixture
def ask(model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Make a page, and do something on it."""
    for name, value in (_SETTINGS | {"GRADIO_TEMP_DIR": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    from alfa.serve._page import build

    def make(actions: Actions) -> Callable[..., list[Any]]:
        page = _call_in_event_loop(lambda: build(model, actions))
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


def test_a_full_page_says_so_whatever_somebody_does(ask: Any, actions: Actions) -> None:
    act = ask(actions)
    actions.sessions.open("somebody else")
    for event, data in (("teach", {"do": "add"}), ("learn", None), ("keep", {"do": "save"})):
        notice, *others = act(event, data)
        assert "1 people are using this page" in notice
        assert len(others) >= 6
    # Nobody else's classes are shown, and the buttons are told that it is over.
    assert others[0]["number"] > 0
    assert all(other == gr.skip() for other in others[1:])
    assert actions.sessions.get("me") is None


def test_who_leaves_while_it_learns_is_not_there_afterwards(
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


def test_after_learning_nothing_has_been_tried(ask: Any, actions: Actions) -> None:
    act = ask(actions)
    shown = act("learn")
    assert "Give each class a few pictures first." in shown[LEARN_NOTICE]
    assert "Teach it first" in shown[ANSWER]
    assert shown[TRY_NOTICE] == gr.skip()
    _teach(actions, "me")
    for _ in range(2):
        shown = act("learn")
        assert "Now show it something new" in shown[ANSWER]
        assert shown[TRY_NOTICE] == ""
        notice, answer = act("try_1", {"do": "draw", "strokes": RING})
        assert not notice
        assert "alfa-odd" in answer
        # What was said stays while examples change.
        assert act("teach", {"do": "draw", "strokes": RING})[ANSWER] == gr.skip()


def test_whatever_goes_wrong_the_buttons_are_told(
    ask: Any,
    make_session: Callable[[], Session],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def to_onnx(adapted: AdaptedModel, names: Any) -> bytes:
        raise RuntimeError("no such operation\nand much more")

    monkeypatch.setattr(AdaptedModel, "to_onnx", to_onnx)
    actions = Actions(Sessions(make_session), Transfers(), can_export=True)
    act = ask(actions)
    _teach(actions, "me")
    actions.learn("me")
    first = act("keep", {"do": "export"})
    assert "This did not work (RuntimeError: no such operation); more is told" in first[KEEP_NOTICE]
    assert "and much more" in capsys.readouterr().err
    second = act("keep", {"do": "export"})
    assert first[DELIVERY] == {"token": "", "name": "", "number": 1}
    assert second[DELIVERY]["number"] == 2


def test_there_is_a_pad_only_where_somebody_can_draw(model: Model, ask: Any) -> None:
    from alfa.serve._page import build

    def names(served: Model) -> list[str]:
        actions = Actions(Sessions(lambda: Session(served)), Transfers())
        page = _call_in_event_loop(lambda: build(served, actions))
        return [block.elem_id for block in page.blocks.values() if hasattr(block, "elem_id")]

    assert {"teach-pad", "try-pad"} <= set(names(model))
    assert not {"teach-pad", "try-pad"} & set(names(replace(model, dataset="scans")))


def test_what_was_tried_since_it_was_learnt_stays(
    ask: Any, actions: Actions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody draws while the answer to Learn is still being made."""
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

    # The browser shows what has the later turn.
    assert turn(untried) < turn(tried[0])


def test_the_page_says_how_many_there_can_be(model: Model, ask: Any, actions: Actions) -> None:
    from alfa.serve._page import build

    page = _call_in_event_loop(lambda: build(model, actions))
    text = " ".join(str(getattr(block, "value", "")) for block in page.blocks.values())
    assert "Make 2 to 20 classes and give each a few pictures" in text
    assert "50 the most (200 in all)" in text
    assert "up to 10 MB each" in text
