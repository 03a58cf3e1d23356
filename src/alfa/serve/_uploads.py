"""Files of a request, held in memory and never written to disk."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from alfa.serve._limits import Limits
from alfa.serve._photo import Upload, clean_name
from alfa.serve._problem import Problem, busy
from alfa.serve._service import Service

STROKES = "application/vnd.alfa.strokes+json"
"""The media type of drawings."""

_FILES = {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1}
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"files": _FILES},
                    "required": ["files"],
                    "additionalProperties": False,
                }
            }
        },
    }
}
"""The OpenAPI description of a request with files."""


class _MemoryParser(MultiPartParser):
    # The guard limits the size of the request, so no file reaches the limit and goes to disk.
    spool_max_size = 1 << 40


@asynccontextmanager
async def receiving(request: Request, service: Service) -> AsyncIterator[list[Upload]]:
    """Receive the files of a request, and count their memory within the context."""
    counted = 0

    async def stream() -> AsyncGenerator[bytes, None]:
        nonlocal counted
        async for part in request.stream():
            counted += len(part)
            service.num_receiving_bytes += len(part)
            if service.num_receiving_bytes > service.limits.receiving_bytes:
                raise busy("the server is receiving too many files; try again later.", seconds=5)
            yield part

    try:
        yield await _read(request, stream(), service.limits)
    finally:
        service.num_receiving_bytes -= counted


async def _read(
    request: Request, stream: AsyncGenerator[bytes, None], limits: Limits
) -> list[Upload]:
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "multipart/form-data":
        detail = f"the body must be multipart/form-data with one or more `files`, got {kind!r}."
        raise Problem(415, "not-multipart", detail)
    # A part more than allowed, for a clear error message.
    parser = _MemoryParser(request.headers, stream, max_files=limits.files + 1, max_fields=0)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        detail = f"the body is invalid: {error.message.rstrip('.').lower()}."
        raise Problem(422, "invalid-multipart", detail, field="files") from None
    try:
        files = [file for file in form.getlist("files") if isinstance(file, UploadFile)]
        if not 1 <= len(files) <= limits.files:
            detail = f"`files` must be 1 to {limits.files} files, got {len(files)}."
            raise Problem(422, "invalid-multipart", detail, field="files")
        return [
            Upload(
                clean_name(file.filename or ""),
                await file.read(),
                is_drawing=(file.content_type or "").partition(";")[0].strip() == STROKES,
            )
            for file in files
        ]
    finally:
        await form.close()
