"""The documentation site builds without warnings and needs no other server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_navigation(site: Path) -> None:
    start = (site / "index.html").read_text()
    navigation = set(re.findall(r'href="([^"#:]+)" class="md-nav__link', start))
    # The index page of a section and the page of each result are links of their section.
    pages = {path.relative_to(site).parent for path in site.rglob("index.html")} - {Path(".")}
    linked = {Path(link) for link in navigation}
    assert pages - linked == set()


def test_pages_load_nothing_from_other_servers(site: Path) -> None:
    loaded = re.compile(r'<(?:script|img|iframe)[^>]+src="([^"]+)"|<link[^>]+href="([^"]+)"')
    for page in site.rglob("*.html"):
        targets = [a or b for a, b in loaded.findall(page.read_text())]
        assert [target for target in targets if target.startswith(("http", "//"))] == [], page


def test_the_reference_describes_commands_and_options(site: Path) -> None:
    commands = (site / "cli" / "index.html").read_text()
    assert "alfa train" in commands
    assert "--max-restarts" in commands
    configuration = (site / "config" / "index.html").read_text()
    assert "state_gradient" in configuration
    assert "num_val_tasks" in configuration


def test_the_reference_describes_public_names(site: Path) -> None:
    pages = " ".join(page.read_text() for page in (site / "api").rglob("*.html"))
    for name in ("alfa.learner.Learner", "alfa.rules.ALFA", "alfa.training.Trainer"):
        assert f'id="{name}"' in pages
