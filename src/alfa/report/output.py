"""Formats of report files: HTML from templates, and CSV."""

import base64
import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jinja2

import alfa


def render_template(
    name: str, *, filters: Mapping[str, Callable[..., Any]] | None = None, **values: Any
) -> str:
    """Render a template with all values escaped; a missing value is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("alfa", "report/templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters or {}
    return environment.get_template(name).render(version=alfa.__version__, **values)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Format comma-separated values."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([header, *rows])
    return file.getvalue()


def data_url(content: bytes, kind: str) -> str:
    """Embed an image in a URL; `kind` is a MIME subtype, such as ``"png"`` or ``"svg+xml"``."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
