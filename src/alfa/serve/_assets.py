"""Files of the page and of the API documentation, which are read once."""

from __future__ import annotations

import hashlib
import importlib.util
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request, Response

from alfa.serve._problem import Problem

_ROOT = Path(__file__).parent
# This package ships the files of Swagger UI.
_SWAGGER, _SWAGGER_FILES = "fastapi_offline", ("swagger-ui.css", "swagger-ui-bundle.js")
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}


@dataclass(frozen=True)
class Asset:
    """A file in memory."""

    content: bytes
    media_type: str
    etag: str

    @classmethod
    def read(cls, path: Path) -> Asset:
        content = path.read_bytes()
        guessed = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
        digest = hashlib.sha256(content).hexdigest()[:16]
        return cls(content, guessed or "application/octet-stream", f'"{digest}"')

    def response(self, request: Request) -> Response:
        """Return the file, or that the browser has the current one."""
        headers = {"ETag": self.etag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == self.etag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


@dataclass(frozen=True)
class Assets:
    """The files that the server delivers; no other path leads to a file."""

    page: Asset
    docs: Asset
    files: Mapping[str, Asset]

    @classmethod
    def read(cls) -> Assets:
        static, docs = _ROOT / "static", _ROOT / "docs"
        files = {
            f"static/{path.relative_to(static).as_posix()}": Asset.read(path)
            for path in static.rglob("*")
            if path.is_file()
        }
        files["docs/start.js"] = Asset.read(docs / "start.js")
        package = importlib.util.find_spec(_SWAGGER)
        for folder in (package and package.submodule_search_locations) or ():
            for name in _SWAGGER_FILES:
                files[f"docs/{name}"] = Asset.read(Path(folder) / "static" / name)
        return cls(Asset.read(static / "page.html"), Asset.read(docs / "index.html"), files)

    def get(self, path: str) -> Asset:
        """Return a file by its path below the root of the page; raise if there is none."""
        if path not in self.files:
            raise Problem(404, "not-found", f"there is no file {path!r}.")
        return self.files[path]
