"""Middleware that checks requests before the application sees them."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from alfa.serve._limits import Limits, megabytes
from alfa.serve._problem import Problem

COOKIE = "alfa-token"
# The browser must not contact any other server, nor run code from other places.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; media-src 'self' blob:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=(), payment=(), usb=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Guard:
    """ASGI middleware that rejects requests, limits bodies, and adds headers to responses.

    Args:
        app: the application.
        hosts: names of the server in the `Host` header. Every IP address is allowed, because an
            attack by DNS rebinding needs a name.
        token: secret that requests must have; None for no token.
        limits: the limits of requests.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Sequence[str], token: str | None, limits: Limits
    ) -> None:
        self._app, self._token, self._limits = app, token, limits
        self._hosts = {"localhost", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # The server has no WebSockets.
            await send({"type": "websocket.close", "code": 1008})
            return
        send = _with_headers(scope, send)
        try:
            answer = self._check(scope)
        except Problem as problem:
            answer = problem.response()
        if answer is not None:
            await answer(scope, receive, send)
            return
        body = _Body(receive, self._limits, self._max_bytes(scope))
        try:
            await self._app(scope, body.receive, body.watch(send))
        except Problem as problem:
            if body.is_answered:
                raise
            await problem.response()(scope, receive, send)

    def _check(self, scope: Scope) -> Response | None:
        """Return a response instead of the application's; raise a Problem for a bad request."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        match = re.fullmatch(r"([\w.-]+|\[[\da-fA-F:.]+\])(:\d+)?", host, re.ASCII)
        name = match[1].lower() if match else ""
        if name not in self._hosts and not _is_address(name):
            detail = f"the host {host!r} is not allowed; open the address that `alfa serve` prints."
            raise Problem(403, "host-not-allowed", detail)
        # A proxy may add TLS.
        if headers.get("origin", f"http://{host}") not in (f"http://{host}", f"https://{host}"):
            raise Problem(403, "origin-not-allowed", "requests from other sites are not allowed.")
        if self._token is not None:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            is_page = scope["path"].removeprefix(scope.get("root_path", "")) in ("", "/")
            if is_page and self._is_valid(given):
                return self._log_in(scope)
            if not self._is_valid(_given_token(headers)):
                detail = "a token is required; open the address that `alfa serve` prints, or send "
                detail += "it as `Authorization: Bearer TOKEN`."
                raise Problem(401, "no-token", detail, headers={"WWW-Authenticate": "Bearer"})
        length = headers.get("content-length", "0")
        if not re.fullmatch(r"\d{1,12}", length) or int(length) > self._max_bytes(scope):
            raise _too_large(self._max_bytes(scope))
        return None

    def _is_valid(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), (self._token or "").encode())

    def _log_in(self, scope: Scope) -> Response:
        """Store the token in a cookie, and remove it from the address."""
        answer = RedirectResponse("./", 303)
        root, is_secure = scope.get("root_path", "") or "/", scope["scheme"] == "https"
        options: dict[str, Any] = {"httponly": True, "samesite": "strict", "secure": is_secure}
        answer.set_cookie(COOKIE, self._token or "", path=root, **options)
        return answer

    def _max_bytes(self, scope: Scope) -> int:
        headers = Headers(scope=scope)
        if not headers.get("content-type", "").lower().startswith("multipart/"):
            return self._limits.json_bytes
        is_import = scope["path"].endswith("/import")
        return self._limits.zip_bytes if is_import else self._limits.request_bytes


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _given_token(headers: Headers) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


def _too_large(limit: int) -> Problem:
    return Problem(413, "too-large", f"the body of the request is larger than {megabytes(limit)}.")


class _Body:
    """The body of a request, with limits on its size, its pauses, and its duration."""

    def __init__(self, receive: Receive, limits: Limits, max_bytes: int) -> None:
        self._receive, self._limits, self._max_bytes = receive, limits, max_bytes
        self._end = time.monotonic() + limits.upload_seconds
        self._length, self._is_complete = 0, False
        self.is_answered = False

    async def receive(self) -> Message:
        """Return the next part of the body."""
        if self._is_complete:
            # The application waits for the client to disconnect.
            return await self._receive()
        seconds = min(self._limits.silent_seconds, self._end - time.monotonic())
        try:
            async with asyncio.timeout(max(seconds, 0)):
                message = await self._receive()
        except TimeoutError:
            detail = "the body of the request did not arrive in time; try again."
            raise Problem(408, "too-slow", detail, headers={"Connection": "close"}) from None
        self._length += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._length > self._max_bytes:
            raise _too_large(self._max_bytes)
        return message

    def watch(self, send: Send) -> Send:
        """Return a function that notes the start of the response."""

        async def watched(message: Message) -> None:
            self.is_answered = True
            await send(message)

        return watched


def _with_headers(scope: Scope, send: Send) -> Send:
    # No photo survives its session, even in the browser. Files of the page have an ETag.
    caching = {"cache-control": "no-store" if "/api/" in scope["path"] else "no-cache"}

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in (_HEADERS | caching).items():
                headers.setdefault(name, value)
        await send(message)

    return answer
