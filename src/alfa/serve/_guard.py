"""Middleware that accepts only the requests that the page needs."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from alfa.serve import _limits as limits

# All other gradio routes are closed, such as documentation, uploads, proxies, and monitoring.
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
    limits.FILES,
)
_OPEN_BELOW = ("/assets/", "/static/", "/svelte/", "/gradio_api/heartbeat/", f"{limits.FILES}/")
_HOSTS = ("127.0.0.1", "localhost")
_HEADERS = {
    # The browser must not contact any other host.
    "content-security-policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        "media-src 'self' blob:; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Guard:
    """ASGI middleware that rejects requests and adds security headers to responses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            app = _rejection(scope["path"], Headers(scope=scope)) or self._app
            await app(scope, _limited(receive, _max_bytes(scope["path"])), _with_headers(send))
        else:
            # The page does not use WebSockets.
            await send({"type": "websocket.close", "code": 1008})


def _rejection(path: str, headers: Headers) -> ASGIApp | None:
    """Return the response to a rejected request, or None to accept it."""
    host = headers.get("host", "")
    length = headers.get("content-length", "0")
    # The first two checks prevent DNS rebinding and cross-site requests.
    if host.partition(":")[0] not in _HOSTS:
        return PlainTextResponse("this page is only available at 127.0.0.1", 403)
    if headers.get("origin", f"http://{host}") != f"http://{host}":
        return PlainTextResponse("other sites must not use this page", 403)
    if path not in _OPEN and not path.startswith(_OPEN_BELOW):
        return PlainTextResponse("not found", 404)
    if not length.isdecimal() or int(length) > _max_bytes(path):
        return PlainTextResponse("the request is too large", 413)
    return None


def _max_bytes(path: str) -> int:
    return limits.MAX_ZIP if path == limits.FILES else limits.MAX_REQUEST


def _limited(receive: Receive, limit: int) -> Receive:
    """Disconnect a client that sends more bytes than the limit, even if it declared fewer."""
    total = 0

    async def receive_limited() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        return message if total <= limit else {"type": "http.disconnect"}

    return receive_limited


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(_HEADERS)
        await send(message)

    return send_with_headers
