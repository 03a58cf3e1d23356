"""The formats of report files: HTML from templates, and CSV."""

from __future__ import annotations

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
    """A page from a template; all values are escaped, and a missing value is an error."""
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
    """Comma-separated values."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return file.getvalue()


def data_url(content: bytes, kind: str) -> str:
    """An image that is part of a page; `kind` is such as ``"png"`` or ``"svg+xml"``."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
