"""The routes for uploads and downloads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from alfa.data import ImageFormat
from alfa.serve import Model, _limits, _transfers
from alfa.serve._limits import FILES, MAX_FILE, MAX_ZIP
from alfa.serve._model import UploadedImage
from alfa.serve._transfers import File, Transfers

testclient = pytest.importorskip("starlette.testclient")
# Memory for three of the largest files.
ROOM = 3 * MAX_FILE


@pytest.fixture
def transfers() -> Transfers:
    return Transfers(max_bytes=ROOM)


@pytest.fixture
def browser(transfers: Transfers, model: Model) -> Iterator[Any]:
    from fastapi import FastAPI

    app = FastAPI()
    _transfers.add_routes(app, transfers, model)
    with testclient.TestClient(app) as client:
        yield client


def _sent(browser: Any, content: bytes, *, kind: str, name: str = "a.png") -> Any:
    asked = {"kind": kind, "name": name, "who": "me"}
    return browser.post("/alfa/files", params=asked, content=content)


def test_uploads_are_limited_and_downloads_happen_once(browser: Any, transfers: Transfers) -> None:
    token = _sent(browser, b"content", kind="examples", name="a/b.zip").json()["token"]
    answer = browser.get(f"/alfa/files/{token}")
    assert answer.content == b"content"
    assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''b.zip"
    assert browser.get(f"/alfa/files/{token}").status_code == 404
    assert _sent(browser, bytes(MAX_FILE + 1), kind="examples").status_code == 200
    for kind, limit, told in (("picture", MAX_FILE, "10 MB"), ("examples", MAX_ZIP, "20 MB")):
        answer = _sent(browser, bytes(limit + 1), kind=kind)
        assert (answer.status_code, answer.json()["problem"]) == (
            413,
            f"“a.png” is larger than {told}.",
        )
    assert len(transfers) == 1


def test_pictures_are_reduced_to_the_model_input(
    browser: Any, transfers: Transfers, model: Model, pictures: list[list[bytes]]
) -> None:
    token = _sent(browser, pictures[0][0], kind="picture").json()["token"]
    seen = transfers.take(token, UploadedImage)
    assert seen.name == "a.png"
    assert (seen.pixels == model.read(pictures[0][0])).all()
    token = _sent(browser, b"hello", kind="picture", name="notes.txt").json()["token"]
    # A picture cannot be downloaded.
    assert browser.get(f"/alfa/files/{token}").status_code == 404
    token = _sent(browser, b"hello", kind="picture", name="notes.txt").json()["token"]
    problem = transfers.take(token, UploadedImage).problem
    assert problem == "“notes.txt” is not an image, or its format is not supported."


def test_large_photos_leave_memory_for_others(
    browser: Any, transfers: Transfers, pictures: list[list[bytes]]
) -> None:
    # Decoders ignore bytes after the end of a PNG.
    photo = pictures[0][0] + bytes(MAX_FILE - len(pictures[0][0]))
    tokens = [_sent(browser, photo, kind="picture").json()["token"] for _ in range(5)]
    transfers.put(File("a.zip", bytes(MAX_ZIP)))
    assert all(transfers.take(token, UploadedImage).pixels is not None for token in tokens)


def test_uploads_belong_to_a_session(browser: Any, transfers: Transfers) -> None:
    _sent(browser, b"content", kind="examples")
    transfers.drop("me")
    assert len(transfers) == 0


def test_full_memory_returns_a_problem(browser: Any, transfers: Transfers) -> None:
    transfers.put(File("a.zip", bytes(ROOM - 10_000)))
    answer = _sent(browser, bytes(10_000), kind="examples")
    assert answer.status_code == 503
    assert answer.json()["problem"].startswith("too many files are in transit")


def test_a_stalled_upload_does_not_block_others(
    transfers: Transfers, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server receives one file at a time, and one client never sends its second half."""
    from fastapi import FastAPI

    monkeypatch.setattr(_limits, "MAX_RECEIVING", 1)
    monkeypatch.setattr(_limits, "MAX_UPLOAD_SECONDS", 0.05)
    app = FastAPI()
    _transfers.add_routes(app, transfers, model)

    async def ask(*parts: bytes, is_all: bool) -> tuple[int, str]:
        sent: list[Any] = []
        waiting = iter(parts)

        async def receive() -> dict[str, Any]:
            part = next(waiting, None)
            if part is None:
                await asyncio.sleep(60)
            return {"type": "http.request", "body": part, "more_body": not is_all}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": FILES, "headers": []}
        await app({**scope, "query_string": b"kind=examples&name=a.zip"}, receive, send)
        return sent[0]["status"], sent[1]["body"].decode()

    async def both() -> list[tuple[int, str]]:
        return await asyncio.gather(ask(b"half", is_all=False), ask(b"all", is_all=True))

    stalled, other = asyncio.run(both())
    assert stalled == (408, '{"problem":"“a.zip” did not arrive within 0.05 seconds; try again."}')
    assert other[0] == 200
    assert len(transfers) == 1


@pytest.mark.parametrize("name", ["猫.zip", 'a"; filename="x.exe', "a\r\nX-Own: 1"])
def test_names_cannot_inject_headers(browser: Any, name: str) -> None:
    token = _sent(browser, b"content", kind="examples", name=name).json()["token"]
    answer = browser.get(f"/alfa/files/{token}")
    assert answer.status_code == 200
    told = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    assert answer.headers["Content-Disposition"] == told
    assert "X-Own" not in answer.headers


def test_uploads_of_a_closed_tab_are_dropped(transfers: Transfers, model: Model) -> None:
    from fastapi import FastAPI

    app = FastAPI()
    _transfers.add_routes(app, transfers, model)
    messages = iter([{"type": "http.request", "body": b"all", "more_body": False}])

    async def receive() -> dict[str, Any]:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        pass

    scope = {"type": "http", "method": "POST", "path": FILES, "headers": []}
    asyncio.run(app({**scope, "query_string": b"kind=examples&name=a.zip"}, receive, send))
    assert len(transfers) == 0


def test_one_picture_is_decoded_at_a_time(
    model: Model, pictures: list[list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, most, lock = 0, 0, threading.Lock()
    true = ImageFormat.decode

    def decode(*given: Any, **options: Any) -> Any:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.02)
        with lock:
            at_once -= 1
        return true(*given, **options)

    monkeypatch.setattr(ImageFormat, "decode", decode)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(model.read, [pictures[0][0]] * 12))
    assert most == 1
