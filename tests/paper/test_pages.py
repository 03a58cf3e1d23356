"""The pages in docs/tables match the registry and the saved runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from alfa.paper import TABLES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("pages", ROOT / "tools/pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        spec.loader.exec_module(module)
        return module.pages()


@pytest.mark.parametrize("name", ["README", *TABLES])
def test_a_page_is_up_to_date(pages, name) -> None:
    kept = (ROOT / "docs/tables" / f"{name}.md").read_text()
    message = "docs/tables is outdated; run `python tools/pages.py write`"
    assert kept == pages[f"{name}.md"], message


def test_every_page_is_generated(pages) -> None:
    assert {path.name for path in (ROOT / "docs/tables").iterdir()} == set(pages)
