"""The sessions of all users."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from alfa.errors import ConfigError
from alfa.serve._limits import IDLE_SECONDS
from alfa.serve._session import Session, Sessions


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_every_tab_has_its_own_session(make_session: Callable[[], Session]) -> None:
    sessions = Sessions(make_session)
    mine = sessions.open("me")
    mine.rename(mine.classes[0].number, "mine")
    assert sessions.open("me") is mine
    assert sessions.open("you").classes[0].name == "Class 1"
    sessions.close("me")
    assert sessions.open("me").classes[0].name == "Class 1"
    # `get` does not create a session.
    sessions.close("me")
    assert sessions.get("me") is sessions.get(None) is None
    assert sessions.get("you") is sessions.open("you")
    assert len(sessions) == 1
    sessions.close("nobody")
    sessions.close(None)
    with pytest.raises(ConfigError, match="only in a browser"):
        sessions.open(None)


def test_fifty_threads_have_independent_sessions(make_session: Callable[[], Session]) -> None:
    sessions = Sessions(make_session)

    def use(who: str) -> None:
        for number in range(20):
            session = sessions.open(who)
            with session.lock:
                session.rename(session.classes[0].number, f"{who} {number}")

    threads = [threading.Thread(target=use, args=(f"p{n}",)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sessions) == 50
    for number in range(50):
        assert sessions.open(f"p{number}").classes[0].name == f"p{number} 19"


def test_idle_sessions_make_room_on_a_full_page(
    make_session: Callable[[], Session],
) -> None:
    clock = Clock()
    sessions = Sessions(make_session, capacity=2, clock=clock)
    first = sessions.open("a")
    sessions.open("b")
    with pytest.raises(ConfigError, match="all 2 sessions of this page are in use"):
        sessions.open("c")
    clock.now += IDLE_SECONDS - 1
    sessions.open("b")
    clock.now += 1
    sessions.open("c")
    assert len(sessions) == 2
    clock.now += IDLE_SECONDS
    assert sessions.open("a") is not first
