"""The requests that the server accepts."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from alfa.serve._limits import FILES, MAX_REQUEST, MAX_ZIP

# The routes of gradio that the page needs; documentation, uploads, proxies, monitoring, and all
# others are closed.
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
    FILES,
)
_OPEN_BELOW = ("/assets/", "/static/", "/svelte/", "/gradio_api/heartbeat/", f"{FILES}/")
_HOSTS = ("127.0.0.1", "localhost")

# The page may not contact any other host.
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
_HEADERS = {
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Guard:
    """Middleware that refuses all requests that the page does not need."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            app = _refusal(scope["path"], Headers(scope=scope)) or self._app
            receive = _limited(receive, _max_bytes(scope["path"]))
            await app(scope, receive, _with_headers(send))
        else:
            # The page uses no WebSockets.
            await send({"type": "websocket.close", "code": 1008})


def _refusal(path: str, headers: Headers) -> ASGIApp | None:
    """The response to a request that is refused; None if it is not."""
    host = headers.get("host", "")
    length = headers.get("content-length", "0")
    # Protects against DNS rebinding and cross-site requests.
    if host.partition(":")[0] not in _HOSTS:
        return PlainTextResponse("this page answers on 127.0.0.1 only", 403)
    if headers.get("origin", f"http://{host}") != f"http://{host}":
        return PlainTextResponse("another site may not use this page", 403)
    if path not in _OPEN and not path.startswith(_OPEN_BELOW):
        return PlainTextResponse("there is nothing here", 404)
    if not length.isdecimal() or int(length) > _max_bytes(path):
        return PlainTextResponse("this is too large", 413)
    return None


def _max_bytes(path: str) -> int:
    return MAX_ZIP if path == FILES else MAX_REQUEST


def _limited(receive: Receive, limit: int) -> Receive:
    """Disconnect a client that sends more than the limit, whatever length it declared."""
    total = 0

    async def checked() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        return message if total <= limit else {"type": "http.disconnect"}

    return checked


def _with_headers(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(_HEADERS)
        await send(message)

    return with_headers
