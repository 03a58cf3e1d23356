"""What the page's server lets through."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from alfa.serve._limits import MAX_REQUEST, MAX_ZIP

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

FILES = "/alfa/files"

# Of gradio's addresses, those that the page asks for; documentation, uploads, proxies, monitoring
# and the rest are closed.
_OPEN = (
    "/",
    "/config",
    "/theme.css",
    "/manifest.json",
    "/favicon.ico",
    "/gradio_api/app_id",
    "/gradio_api/queue/join",
    "/gradio_api/queue/data",
    "/gradio_api/startup-events",
)
_OPEN_BELOW = ("/assets/", "/static/", "/svelte/", "/gradio_api/heartbeat/", f"{FILES}/")

# A site that calls itself by the name of this computer, or that has the page do something behind
# a person's back, is refused.
_HOSTS = ("127.0.0.1", "localhost")

# The browser is told to ask nobody else, whatever a script of the page may try.
_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "media-src 'self' blob:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]


class Guard:
    """Refuses what the page does not need, before anything else sees it.

    Args:
        app: what is guarded.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # The page opens no socket.
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        refused = _refusal(scope, headers)
        if refused is not None:
            await _answer(send, *refused)
            return
        await self._app(scope, _limited(receive, _limit_of(scope["path"])), _marked(send))


def _refusal(scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
    """Why a request is refused; None if it is not."""
    host = headers.get("host", "")
    if host.partition(":")[0] not in _HOSTS:
        return 403, "this page answers on 127.0.0.1 only"
    if headers.get("origin", f"http://{host}") != f"http://{host}":
        return 403, "another site may not use this page"
    path = scope["path"]
    if path not in (*_OPEN, FILES) and not path.startswith(_OPEN_BELOW):
        return 404, "there is nothing here"
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > _limit_of(path):
        return 413, "this is too large"
    return None


def _limit_of(path: str) -> int:
    return MAX_ZIP if path == FILES else MAX_REQUEST


def _limited(receive: Receive, limit: int) -> Receive:
    """What is sent without saying how much it is ends as if the sender had gone."""
    read = 0

    async def checked() -> MutableMapping[str, Any]:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        return message if read <= limit else {"type": "http.disconnect"}

    return checked


def _marked(send: Send) -> Send:
    async def marked(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *_HEADERS]
        await send(message)

    return marked


async def _answer(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
