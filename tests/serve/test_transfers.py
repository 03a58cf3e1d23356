"""Uploads and downloads in memory."""

from __future__ import annotations

import time

import numpy as np
import pytest

from alfa.errors import ConfigError
from alfa.serve import _transfers
from alfa.serve._limits import MAX_TRANSFER_SECONDS
from alfa.serve._model import UploadedImage
from alfa.serve._transfers import File, Transfers


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_file_is_taken_once() -> None:
    transfers = Transfers()
    token = transfers.put(File("a.zip", b"content"))
    assert transfers.take(token, File).content == b"content"
    assert len(transfers) == 0
    picture = transfers.put(UploadedImage("a.png", problem="“a.png” is an empty file."))
    for wrong in (token, "nonsense", None, 3, ["x"], picture):
        with pytest.raises(ConfigError, match="not there any more"):
            transfers.take(wrong, File)


def test_files_are_neither_too_many_nor_kept_for_long() -> None:
    clock = Clock()
    transfers = Transfers(max_bytes=10_000, clock=clock)
    token = transfers.put(File("a", bytes(8_000)))
    for more in (File("b", bytes(3_000)), UploadedImage("b", np.zeros((3, 32, 32), np.uint8))):
        with pytest.raises(ConfigError, match="too many files"):
            transfers.put(more)
    clock.now += MAX_TRANSFER_SECONDS + 1
    transfers.put(File("b", b"123"))
    with pytest.raises(ConfigError, match="not there any more"):
        transfers.take(token, File)
    clock.now += MAX_TRANSFER_SECONDS + 1
    transfers.expire()
    assert len(transfers) == 0


def test_even_what_is_nothing_takes_room() -> None:
    transfers = Transfers(max_bytes=5_000)
    empty = UploadedImage("x.png", problem="“x.png” is an empty file.")
    for _ in range(4):
        transfers.put(empty)
    with pytest.raises(ConfigError, match="too many files"):
        transfers.put(empty)


def test_what_somebody_had_on_its_way_goes_with_them() -> None:
    transfers = Transfers()
    for who in ("me", "you", None):
        transfers.put(File("a.zip", b"content"), session_id=who)
    transfers.drop(None)
    assert len(transfers) == 3
    transfers.drop("me")
    assert len(transfers) == 2


def test_what_is_too_old_is_not_handed_out() -> None:
    clock = Clock()
    transfers = Transfers(clock=clock)
    token = transfers.put(File("a.zip", b"content"))
    clock.now += MAX_TRANSFER_SECONDS + 1
    with pytest.raises(ConfigError, match="not there any more"):
        transfers.take(token, File)


def test_nothing_stays_where_nobody_does_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_transfers, "MAX_TRANSFER_SECONDS", 0.2)
    transfers = Transfers()
    for _ in range(2):
        transfers.put(File("a.zip", b"content"))
        deadline = time.monotonic() + 30
        while len(transfers) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(transfers) == 0
