"""Ways for files to come and go that never touch the disk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from alfa.errors import ConfigError
from alfa.serve._guard import FILES
from alfa.serve._limits import (
    MAX_FILE,
    MAX_FILE_NAME,
    MAX_RECEIVED,
    MAX_SENDING,
    MAX_ZIP,
    megabytes,
)
from alfa.serve._model import Model, Seen
from alfa.serve._people import Counter, File

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response


def add_files(app: FastAPI, counter: Counter, model: Model) -> None:
    """Let browsers bring files, and fetch those that are ready.

    Args:
        app: that the ways are added to.
        counter: where files lie until they are taken.
        model: that looks at pictures.
    """
    from fastapi.responses import JSONResponse, Response

    # Others wait with theirs unread, so that not all of them lie in memory at once.
    room = asyncio.Semaphore(MAX_RECEIVED)

    async def receive(request: Request) -> Response:
        try:
            async with room:
                content = await _received(request, model)
            # A tab that was closed meanwhile has dropped what was its own.
            if await request.is_disconnected():
                return Response(status_code=499)
            token = counter.put(content, who=request.query_params.get("who"))
            return JSONResponse({"token": token})
        except _RefusedError as error:
            return JSONResponse({"problem": str(error)}, error.status)
        except ConfigError as error:
            return JSONResponse({"problem": str(error)}, 503)

    async def hand_out(request: Request) -> Response:
        try:
            file = counter.take(request.path_params["token"], File)
        except ConfigError as error:
            return JSONResponse({"problem": str(error)}, 404)
        headers = {
            # RFC 6266: names in any script, and none that ends the header's quotes.
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
            "Cache-Control": "no-store",
        }
        return Response(file.content, media_type="application/octet-stream", headers=headers)

    app.add_route(FILES, receive, methods=["POST"])
    app.add_route(f"{FILES}/{{token}}", hand_out, methods=["GET"])


class _RefusedError(ConfigError):
    """A file that is not taken, and the status that says so."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


async def _received(request: Request, model: Model) -> File | Seen:
    """What somebody sends; of a picture what the model sees, as photos would soon fill memory."""
    from starlette.concurrency import run_in_threadpool

    is_zip = request.query_params.get("kind") == "examples"
    name = _shortened(Path(request.query_params.get("name", "")).name or "file")
    content = await _read(request, name=name, limit=MAX_ZIP if is_zip else MAX_FILE)
    return File(name, content) if is_zip else await run_in_threadpool(model.see, name, content)


async def _read(request: Request, *, name: str, limit: int) -> bytes:
    content = bytearray()
    try:
        async with asyncio.timeout(MAX_SENDING):
            async for part in request.stream():
                content += part
                if len(content) > limit:
                    text = f"“{name}” is larger than {megabytes(limit)}."
                    raise _RefusedError(text, status=413)
    except TimeoutError:
        text = f"“{name}” did not arrive within {MAX_SENDING} seconds; try again."
        raise _RefusedError(text, status=408) from None
    return bytes(content)


def _shortened(name: str) -> str:
    return name if len(name) <= MAX_FILE_NAME else f"{name[: MAX_FILE_NAME - 1]}…"
