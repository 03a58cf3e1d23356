"""Uploads and downloads, which are kept in memory and never written to disk."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from alfa.errors import ConfigError
from alfa.serve._limits import (
    FILES,
    MAX_FILE,
    MAX_FILE_NAME,
    MAX_RECEIVING,
    MAX_TRANSFER_BYTES,
    MAX_TRANSFER_SECONDS,
    MAX_UPLOAD_SECONDS,
    MAX_ZIP,
    megabytes,
)
from alfa.serve._model import Model, UploadedImage

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

T = TypeVar("T", "File", UploadedImage)

# Bytes that are counted for each transfer in addition to its content.
_OVERHEAD = 1 << 10


@dataclass(frozen=True)
class File:
    """A file: its name and its content."""

    name: str
    content: bytes


@dataclass(frozen=True)
class _Transfer:
    content: File | UploadedImage
    session_id: str | None
    time: float

    @property
    def num_bytes(self) -> int:
        if isinstance(self.content, File):
            return _OVERHEAD + len(self.content.content)
        pixels = self.content.pixels
        return _OVERHEAD + (0 if pixels is None else pixels.nbytes)


class Transfers:
    """Files and images on their way between browsers and sessions; each is taken once."""

    def __init__(
        self, *, max_bytes: int = MAX_TRANSFER_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_bytes, self._clock = max_bytes, clock
        self._transfers: dict[str, _Transfer] = {}
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._transfers)

    def put(self, content: File | UploadedImage, *, session_id: str | None = None) -> str:
        """Store something for a session; return its secret token.

        Raises:
            ConfigError: there is too much already.
        """
        self.expire()
        new = _Transfer(content, session_id, self._clock())
        with self._lock:
            held = sum(transfer.num_bytes for transfer in self._transfers.values())
            if held + new.num_bytes > self._max_bytes:
                raise ConfigError(
                    "too many files are on their way at once; try again in some minutes."
                )
            token = secrets.token_urlsafe(16)
            self._transfers[token] = new
        self._schedule_expiry()
        return token

    def take(self, token: object, kind: type[T]) -> T:
        """Remove and return something.

        Raises:
            ConfigError: it is not there, or of another kind.
        """
        self.expire()
        with self._lock:
            transfer = self._transfers.pop(token, None) if isinstance(token, str) else None
        if transfer is None or not isinstance(transfer.content, kind):
            raise ConfigError("this file is not there any more; choose it again.")
        return transfer.content

    def drop(self, session_id: str | None) -> None:
        """Drop everything of a session that was closed."""
        self._keep(lambda transfer: not session_id or transfer.session_id != session_id)

    def expire(self) -> None:
        """Drop everything that was not taken for a long time."""
        oldest = self._clock() - MAX_TRANSFER_SECONDS
        self._keep(lambda transfer: transfer.time >= oldest)

    def _keep(self, wanted: Callable[[_Transfer], bool]) -> None:
        with self._lock:
            self._transfers = {
                token: transfer for token, transfer in self._transfers.items() if wanted(transfer)
            }

    def _schedule_expiry(self) -> None:
        """Expire transfers even if there are no further requests."""
        with self._lock:
            if self._timer is not None or not self._transfers:
                return
            oldest = min(transfer.time for transfer in self._transfers.values())
            # A moment more, because a transfer of exactly the limit is kept.
            delay = max(0.0, oldest + MAX_TRANSFER_SECONDS - self._clock()) + 0.1
            self._timer = threading.Timer(delay, self._on_timer)
            self._timer.daemon = True
            self._timer.start()

    def _on_timer(self) -> None:
        with self._lock:
            self._timer = None
        self.expire()
        self._schedule_expiry()


def add_routes(app: FastAPI, transfers: Transfers, model: Model) -> None:
    """Add the routes for uploads and downloads."""
    from fastapi.responses import JSONResponse, Response

    # Further uploads wait unread, so that not all are in memory at once.
    slots = asyncio.Semaphore(MAX_RECEIVING)

    async def upload(request: Request) -> Response:
        try:
            async with slots:
                content = await _receive(request, model)
            # The transfers of a closed tab were dropped already.
            if await request.is_disconnected():
                return Response(status_code=499)
            token = transfers.put(content, session_id=request.query_params.get("who"))
            return JSONResponse({"token": token})
        except _UploadError as error:
            return JSONResponse({"problem": str(error)}, error.status)
        except ConfigError as error:
            return JSONResponse({"problem": str(error)}, 503)

    async def download(request: Request) -> Response:
        try:
            file = transfers.take(request.path_params["token"], File)
        except ConfigError as error:
            return JSONResponse({"problem": str(error)}, 404)
        headers = {
            # RFC 6266: names in any script, without breaking the header.
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
            "Cache-Control": "no-store",
        }
        return Response(file.content, media_type="application/octet-stream", headers=headers)

    app.add_route(FILES, upload, methods=["POST"])
    app.add_route(f"{FILES}/{{token}}", download, methods=["GET"])


class _UploadError(ConfigError):
    """An upload that is refused, with the HTTP status."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


async def _receive(request: Request, model: Model) -> File | UploadedImage:
    """Read an upload; images are decoded at once, because photos would fill the memory."""
    from starlette.concurrency import run_in_threadpool

    is_zip = request.query_params.get("kind") == "examples"
    limit = MAX_ZIP if is_zip else MAX_FILE
    name = Path(request.query_params.get("name", "")).name or "file"
    name = name if len(name) <= MAX_FILE_NAME else f"{name[: MAX_FILE_NAME - 1]}…"
    content = bytearray()
    try:
        async with asyncio.timeout(MAX_UPLOAD_SECONDS):
            async for part in request.stream():
                content += part
                if len(content) > limit:
                    text = f"“{name}” is larger than {megabytes(limit)}."
                    raise _UploadError(text, status=413)
    except TimeoutError:
        text = f"“{name}” did not arrive within {MAX_UPLOAD_SECONDS} seconds; try again."
        raise _UploadError(text, status=408) from None
    if is_zip:
        return File(name, bytes(content))
    return await run_in_threadpool(model.receive, name, bytes(content))
