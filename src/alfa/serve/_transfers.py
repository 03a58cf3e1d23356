"""Uploads and downloads, held in memory and never written to disk."""

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
from alfa.serve import _limits as limits
from alfa.serve._model import Model, UploadedImage

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

T = TypeVar("T", "File", UploadedImage)

# Bytes counted for each transfer in addition to its content.
_OVERHEAD = 1 << 10


@dataclass(frozen=True)
class File:
    """A file in memory."""

    name: str
    content: bytes


@dataclass(frozen=True)
class _Transfer:
    content: File | UploadedImage
    session_id: str | None
    time: float
    num_bytes: int


class Transfers:
    """Files and images in transit between browsers and sessions; each can be taken once."""

    def __init__(
        self,
        *,
        max_bytes: int = limits.MAX_TRANSFER_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_bytes, self._clock = max_bytes, clock
        self._transfers: dict[str, _Transfer] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._transfers)

    def put(self, content: File | UploadedImage, *, session_id: str | None = None) -> str:
        """Store content for a session and return its secret token; raise if memory is full."""
        self.expire()
        if isinstance(content, File):
            num_bytes = _OVERHEAD + len(content.content)
        else:
            num_bytes = _OVERHEAD + (0 if content.pixels is None else content.pixels.nbytes)
        with self._lock:
            held = sum(transfer.num_bytes for transfer in self._transfers.values())
            if held + num_bytes > self._max_bytes:
                raise ConfigError("too many files are in transit; try again in a few minutes.")
            token = secrets.token_urlsafe(16)
            self._transfers[token] = _Transfer(content, session_id, self._clock(), num_bytes)
            return token

    def take(self, token: object, kind: type[T]) -> T:
        """Remove and return content; raise if it is missing or of another type."""
        self.expire()
        with self._lock:
            transfer = self._transfers.pop(token, None) if isinstance(token, str) else None
        if transfer is None or not isinstance(transfer.content, kind):
            raise ConfigError("this file is no longer available; choose it again.")
        return transfer.content

    def drop(self, session_id: str | None) -> None:
        """Discard all transfers of a closed session."""
        self._keep(lambda transfer: not session_id or transfer.session_id != session_id)

    def expire(self) -> None:
        """Discard transfers that were not taken in time."""
        oldest = self._clock() - limits.MAX_TRANSFER_SECONDS
        self._keep(lambda transfer: transfer.time >= oldest)

    def _keep(self, wanted: Callable[[_Transfer], bool]) -> None:
        with self._lock:
            self._transfers = {
                token: transfer for token, transfer in self._transfers.items() if wanted(transfer)
            }


def add_routes(app: FastAPI, transfers: Transfers, model: Model) -> None:
    """Add the routes for uploads and downloads."""
    from fastapi import HTTPException
    from fastapi.responses import JSONResponse, Response

    # Further uploads wait unread to limit memory use.
    slots = asyncio.Semaphore(limits.MAX_RECEIVING)

    async def upload(request: Request) -> Response:
        try:
            async with slots:
                content = await _receive(request, model)
            # The transfers of a closed tab were already dropped.
            if await request.is_disconnected():
                return Response(status_code=499)
            token = transfers.put(content, session_id=request.query_params.get("who"))
            return JSONResponse({"token": token})
        except HTTPException as error:
            return JSONResponse({"problem": error.detail}, error.status_code)
        except ConfigError as error:
            return JSONResponse({"problem": str(error)}, 503)

    async def download(request: Request) -> Response:
        try:
            file = transfers.take(request.path_params["token"], File)
        except ConfigError as error:
            return JSONResponse({"problem": str(error)}, 404)
        headers = {
            # RFC 6266 encoding supports all scripts and prevents header injection.
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
            "Cache-Control": "no-store",
        }
        return Response(file.content, media_type="application/octet-stream", headers=headers)

    app.add_route(limits.FILES, upload, methods=["POST"])
    app.add_route(f"{limits.FILES}/{{token}}", download, methods=["GET"])


async def _receive(request: Request, model: Model) -> File | UploadedImage:
    """Receive an upload; decode images immediately, because photos need more memory."""
    from fastapi import HTTPException
    from fastapi.concurrency import run_in_threadpool

    is_zip = request.query_params.get("kind") == "examples"
    limit = limits.MAX_ZIP if is_zip else limits.MAX_FILE
    name = Path(request.query_params.get("name", "")).name or "file"
    name = name if len(name) <= limits.MAX_FILE_NAME else f"{name[: limits.MAX_FILE_NAME - 1]}…"
    content = bytearray()
    try:
        async with asyncio.timeout(limits.MAX_UPLOAD_SECONDS):
            async for part in request.stream():
                content += part
                if len(content) > limit:
                    raise HTTPException(413, f"“{name}” is larger than {limits.megabytes(limit)}.")
    except TimeoutError:
        reason = f"“{name}” did not arrive within {limits.MAX_UPLOAD_SECONDS} seconds; try again."
        raise HTTPException(408, reason) from None
    if is_zip:
        return File(name, bytes(content))
    return await run_in_threadpool(model.receive, name, bytes(content))
