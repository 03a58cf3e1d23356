"""The requests that the server accepts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from alfa.serve._limits import FILES, MAX_REQUEST, MAX_ZIP

Guard = pytest.importorskip("alfa.serve._guard", exc_type=ModuleNotFoundError).Guard


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    """Return the number of received bytes, or nothing after a disconnect."""
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        length += len(message["body"])
        more = message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(length).encode()})


def ask(
    path: str = "/", headers: dict[str, str] | None = None, parts: Iterable[bytes] = (b"",)
) -> tuple[int | None, dict[bytes, bytes]]:
    """Return the status and headers of a response; the status is None without a response."""
    given = {"host": "127.0.0.1:7860"} | (headers or {})
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    sent: list[Any] = []
    waiting = iter(parts)

    async def receive() -> dict[str, Any]:
        part = next(waiting, None)
        return {"type": "http.request", "body": part or b"", "more_body": part is not None}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": pairs}
    asyncio.run(Guard(_echo)(scope, receive, send))
    return (sent[0]["status"], dict(sent[0]["headers"])) if sent else (None, {})


@pytest.mark.parametrize(
    "path",
    ["/", "/config", "/assets/index.js", "/gradio_api/queue/join", FILES, f"{FILES}/token"],
)
def test_routes_of_the_page_are_open(path: str) -> None:
    status, headers = ask(path)
    assert status == 200
    policy = headers[b"content-security-policy"].decode()
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http" not in policy


@pytest.mark.parametrize(
    "path",
    [
        "/docs",
        "/openapi.json",
        "/monitoring",
        "/gradio_api/info",
        "/gradio_api/upload",
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/proxy=http://example.org",
        "/gradio_api/vibe-edit",
        "/gradio_api/runs",
        "/gradio_api/call/teach",
        "/gradio_api/run/teach",
        "/alfa/other",
    ],
)
def test_other_routes_are_closed(path: str) -> None:
    assert ask(path)[0] == 404


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:7860",
        "",
        "127.0.0.1.evil.example",
        "evil.example@127.0.0.1",
        "[",
    ],
)
def test_other_hosts_are_rejected(host: str) -> None:
    assert ask(headers={"host": host})[0] == 403


def test_other_origins_are_rejected() -> None:
    assert ask(headers={"origin": "http://127.0.0.1:7860"})[0] == 200
    for origin in (
        "http://evil.example",
        "null",
        "http://127.0.0.1:9999",
        "https://127.0.0.1:7860",
    ):
        assert ask(headers={"origin": origin})[0] == 403


def test_request_size_is_limited() -> None:
    assert ask("/gradio_api/queue/join", {"content-length": str(MAX_REQUEST + 1)})[0] == 413
    assert ask(FILES, {"content-length": str(MAX_REQUEST + 1)})[0] == 200
    assert ask(FILES, {"content-length": str(MAX_ZIP + 1)})[0] == 413
    assert ask(FILES, {"content-length": "-5"})[0] == 413
    # A client that declares no size is disconnected at the limit.
    part = bytes(MAX_REQUEST // 2)
    assert ask("/gradio_api/queue/join", parts=[part] * 2)[0] == 200
    assert ask("/gradio_api/queue/join", parts=[part] * 3)[0] is None


def test_websockets_are_closed() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(_echo)({"type": "websocket", "path": "/"}, None, send))  # type: ignore[arg-type]
    assert [message["type"] for message in sent] == ["websocket.close"]
