"""Where the pages' templates come from, and how they are filled."""

from __future__ import annotations

import jinja2


def html_environment() -> jinja2.Environment:
    """Everything that is filled in is escaped, and what a template lacks is an error."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("alfa", "report/templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
