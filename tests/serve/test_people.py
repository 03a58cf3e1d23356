"""Many people, and their files on the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from alfa.errors import ConfigError
from alfa.serve import Counter, File, People, Seen, Session, _people
from alfa.serve._limits import IDLE_SECONDS, MAX_SECONDS


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_everybody_has_a_session_of_their_own(make_session: Callable[[], Session]) -> None:
    people = People(make_session)
    mine = people.session("me")
    mine.rename(mine.classes[0].number, "mine")
    assert people.session("me") is mine
    assert people.session("you").classes[0].name == "Class 1"
    people.leave("me")
    assert people.session("me").classes[0].name == "Class 1"
    # Asking whether somebody is there does not bring them.
    people.leave("me")
    assert people.known("me") is people.known(None) is None
    assert people.known("you") is people.session("you")
    assert len(people) == 1
    people.leave("nobody")
    people.leave(None)
    with pytest.raises(ConfigError, match="in a browser"):
        people.session(None)


def test_fifty_threads_do_not_mix(make_session: Callable[[], Session]) -> None:
    people = People(make_session)

    def use(who: str) -> None:
        for number in range(20):
            session = people.session(who)
            with session.lock:
                session.rename(session.classes[0].number, f"{who} {number}")

    threads = [threading.Thread(target=use, args=(f"p{n}",)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(people) == 50
    for number in range(50):
        assert people.session(f"p{number}").classes[0].name == f"p{number} 19"


def test_a_full_page_says_so_and_who_is_gone_makes_room(
    make_session: Callable[[], Session],
) -> None:
    clock = Clock()
    people = People(make_session, capacity=2, clock=clock)
    first = people.session("a")
    people.session("b")
    with pytest.raises(ConfigError, match="2 people are using this page"):
        people.session("c")
    clock.now += IDLE_SECONDS - 1
    people.session("b")
    clock.now += 1
    people.session("c")
    assert len(people) == 2
    clock.now += IDLE_SECONDS
    assert people.session("a") is not first


def test_a_file_is_taken_once() -> None:
    counter = Counter()
    token = counter.put(File("a.zip", b"content"))
    assert counter.take(token, File).content == b"content"
    assert len(counter) == 0
    picture = counter.put(Seen("a.png", problem="“a.png” is an empty file."))
    for wrong in (token, "nonsense", None, 3, ["x"], picture):
        with pytest.raises(ConfigError, match="not there any more"):
            counter.take(wrong, File)


def test_files_are_neither_too_many_nor_kept_for_long() -> None:
    clock = Clock()
    counter = Counter(max_bytes=10_000, clock=clock)
    token = counter.put(File("a", bytes(8_000)))
    for more in (File("b", bytes(3_000)), Seen("b", np.zeros((3, 32, 32), np.uint8))):
        with pytest.raises(ConfigError, match="too many files"):
            counter.put(more)
    clock.now += MAX_SECONDS + 1
    counter.put(File("b", b"123"))
    with pytest.raises(ConfigError, match="not there any more"):
        counter.take(token, File)
    clock.now += MAX_SECONDS + 1
    counter.expire()
    assert len(counter) == 0


def test_even_what_is_nothing_takes_room() -> None:
    counter = Counter(max_bytes=5_000)
    empty = Seen("x.png", problem="“x.png” is an empty file.")
    for _ in range(4):
        counter.put(empty)
    with pytest.raises(ConfigError, match="too many files"):
        counter.put(empty)


def test_what_somebody_had_on_its_way_goes_with_them() -> None:
    counter = Counter()
    for who in ("me", "you", None):
        counter.put(File("a.zip", b"content"), who=who)
    counter.drop(None)
    assert len(counter) == 3
    counter.drop("me")
    assert len(counter) == 2


def test_what_is_too_old_is_not_handed_out() -> None:
    clock = Clock()
    counter = Counter(clock=clock)
    token = counter.put(File("a.zip", b"content"))
    clock.now += MAX_SECONDS + 1
    with pytest.raises(ConfigError, match="not there any more"):
        counter.take(token, File)


def test_nothing_stays_where_nobody_does_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_people, "MAX_SECONDS", 0.2)
    counter = Counter()
    for _ in range(2):
        counter.put(File("a.zip", b"content"))
        deadline = time.monotonic() + 30
        while len(counter) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(counter) == 0
