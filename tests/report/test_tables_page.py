"""The page of the paper's tables: its content, and its controls in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from alfa.report.learning import Curve, draw_curves
from alfa.report.tables import VERDICTS, Box, Grid, Row, RunLine, _address, render_tables_page

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)


def page(*, quick: bool = False) -> str:
    columns = (("Pets", "1-shot"), ("Pets", "5-shot"))
    first = Grid(
        "table1",
        "Table 1",
        "Cats & <dogs>",
        "Some pets.",
        columns,
        (
            Row(
                "4-CONV",
                "MAML",
                (
                    Box("50.00 +- 0.50", "51.00 +- 0.60", "above", ("3 seeds",), link="a b/run"),
                    Box("60.00 +- 0.50", is_quoted=True),
                ),
            ),
            Row("4-CONV", "ALFA", (Box("52.00", "52.10", "within", link="c"), Box("53.00"))),
            Row("ResNet12", "ALFA", (Box("54.00"), Box())),
        ),
        plus_minus="Theirs: 1.00 +- 2.00.",
    )
    marks = (Box("1.00", "quick", "quick", link="q"), Box("2.00")) if quick else (Box("1.00"),) * 2
    second = Grid("table2", "Table 2", "Birds", "More.", columns, (Row("", "MAML", marks),))
    runs = [
        RunLine("zebra", "z", 0, 900, 60.0, "50.00", 600),
        RunLine("ant", "a", 1, 10_000, 30.0, "60.00", 600, "note"),
        RunLine("mouse", "m\udce9", 2, 2_000, 90.0, "40.00", 600),
    ]
    curves = draw_curves(
        [Curve("one", ((0, 1.0), (9, 2.0)))], x_title="iterations", y_title="accuracy"
    )
    return render_tables_page(
        [first, second],
        curves={"table1": curves},
        runs=runs,
        problems=["runs/x: is <damaged>", f"runs/{200 * 'y'}"],
        command=f"alfa report {200 * 'z'}",
    )


class Checker(HTMLParser):
    """Checks that every tag is closed in order."""

    EMPTY = ("meta", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_valid_and_escaped() -> None:
    checker = Checker()
    checker.feed(page())
    assert checker.open == []
    assert "Cats &amp; &lt;dogs&gt;" in page()
    assert "is &lt;damaged&gt;" in page()
    assert 'href="a%20b/run"' in page()
    # The name of the folder is not valid text.
    assert 'href="m%E9"' in page()
    assert "51.00 \u00b1 0.60" in page()


def test_each_table_explains_the_papers_plus_minus() -> None:
    first, second = page().split('id="table1"')[1].split('id="table2"')
    assert "Theirs: 1.00 \u00b1 2.00." in first
    assert "Theirs" not in second


def test_verdicts_are_explained() -> None:
    assert VERDICTS["shorter"] == "trained for fewer iterations than the cell specifies"
    assert f"1 above: <span>{VERDICTS['above']}" in page()


def test_addresses_of_folders() -> None:
    assert _address("../runs/a b") == "../runs/a%20b"
    # Folders on other drives already have an address.
    assert _address("file:///D:/a%20b") == "file:///D:/a%20b"


def test_the_page_needs_no_network() -> None:
    found = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", page())
    assert not [address for address in found if "//" in address]
    assert "@import" not in page()
    assert "url(" not in page()


def test_quick_runs_are_marked_and_explained_if_there_are_any() -> None:
    assert "They are not results" in page(quick=True)
    assert "1 quick" in page(quick=True)
    assert "They are not results" not in page()


@pytest.fixture
def browse(tmp_path):
    """Return the result of a script on the page in a browser; fail if the page has errors."""

    def run(script: str) -> dict:
        watch = (
            "<script>window.faults = [];"
            "addEventListener('error', e => window.faults.push(e.message));</script>"
        )
        ask = (
            "<script>const answer = document.createElement('pre'); answer.id = 'answer';"
            f"answer.textContent = JSON.stringify((() => {{ {script} }})());"
            "answer.dataset.faults = JSON.stringify(window.faults);"
            "document.body.append(answer);</script>"
        )
        html = (
            page(quick=True).replace("<head>", f"<head>{watch}").replace("</body>", f"{ask}</body>")
        )
        file = tmp_path / "page.html"
        file.write_text(html)
        done = subprocess.run(
            [
                *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
                *(f"--user-data-dir={tmp_path / 'profile'}", "--window-size=500,800"),
                file.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        match = re.search(r'<pre id="answer" data-faults="([^"]*)">(.*?)</pre>', done.stdout, re.S)
        assert match is not None, done.stderr
        assert match[1] == "[]"
        return json.loads(match[2].replace("&gt;", ">").replace("&amp;", "&"))

    return run


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_controls_search_filter_collapse_and_sort_the_page_in_a_browser(browse) -> None:
    found = browse(
        """
        const visible = () => [...document.querySelectorAll("details.table tr.row")]
          .filter(row => row.checkVisibility()).map(row => row.cells[0].textContent);
        const set = (id, value, kind) => {
          const field = document.getElementById(id);
          field.value = value;
          field.dispatchEvent(new Event(kind));
        };
        const all = visible();
        set("find", "alfa 4-conv", "input");
        const searched = visible();
        const sections = [...document.querySelectorAll("details.table")]
          .filter(section => section.checkVisibility()).map(section => section.id);
        set("find", "", "input");
        set("verdict", "above", "change");
        const above = visible();
        set("verdict", "measured", "change");
        const measured = visible();
        set("verdict", "", "change");
        document.getElementById("fold").click();
        const open = () => document.querySelectorAll("details[open]").length;
        const folded = open();
        document.getElementById("fold").click();
        const unfolded = open();
        const runs = () => [...document.querySelectorAll(".runs tbody tr")]
          .map(row => row.cells[0].textContent);
        const heads = document.querySelectorAll(".runs th button");
        const sorted = [2, 2, 0].map(number => { heads[number].click(); return runs(); });
        const narrow = document.documentElement.scrollWidth <= innerWidth;
        return {all, searched, sections, above, measured, folded, unfolded, sorted, narrow};
        """
    )
    assert found == {
        "all": ["MAML", "ALFA", "ALFA", "MAML"],
        "searched": ["ALFA"],
        "sections": ["table1"],
        "above": ["MAML"],
        "measured": ["MAML", "ALFA"],
        "folded": 0,
        "unfolded": 4,
        "sorted": [
            ["zebra", "mouse", "ant"],
            ["ant", "mouse", "zebra"],
            ["ant", "mouse", "zebra"],
        ],
        "narrow": True,
    }
