"""Uploads and downloads in memory."""

from __future__ import annotations

import time

import numpy as np
import pytest

from alfa.errors import ConfigError
from alfa.serve import Server, _limits
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
        with pytest.raises(ConfigError, match="no longer available"):
            transfers.take(wrong, File)


def test_transfers_are_limited_and_expire() -> None:
    clock = Clock()
    transfers = Transfers(max_bytes=10_000, clock=clock)
    token = transfers.put(File("a", bytes(8_000)))
    for more in (File("b", bytes(3_000)), UploadedImage("b", np.zeros((3, 32, 32), np.uint8))):
        with pytest.raises(ConfigError, match="too many files"):
            transfers.put(more)
    clock.now += MAX_TRANSFER_SECONDS + 1
    transfers.put(File("b", b"123"))
    with pytest.raises(ConfigError, match="no longer available"):
        transfers.take(token, File)
    clock.now += MAX_TRANSFER_SECONDS + 1
    transfers.expire()
    assert len(transfers) == 0


def test_empty_transfers_count() -> None:
    transfers = Transfers(max_bytes=5_000)
    empty = UploadedImage("x.png", problem="“x.png” is an empty file.")
    for _ in range(4):
        transfers.put(empty)
    with pytest.raises(ConfigError, match="too many files"):
        transfers.put(empty)


def test_closing_a_session_drops_its_transfers() -> None:
    transfers = Transfers()
    for who in ("me", "you", None):
        transfers.put(File("a.zip", b"content"), session_id=who)
    transfers.drop(None)
    assert len(transfers) == 3
    transfers.drop("me")
    assert len(transfers) == 2


def test_expired_transfers_cannot_be_taken() -> None:
    clock = Clock()
    transfers = Transfers(clock=clock)
    token = transfers.put(File("a.zip", b"content"))
    clock.now += MAX_TRANSFER_SECONDS + 1
    with pytest.raises(ConfigError, match="no longer available"):
        transfers.take(token, File)


def test_transfers_expire_without_requests(served: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    served.transfers.put(File("a.zip", b"content"))
    monkeypatch.setattr(_limits, "MAX_TRANSFER_SECONDS", 0.2)
    deadline = time.monotonic() + 30
    while len(served.transfers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(served.transfers) == 0
