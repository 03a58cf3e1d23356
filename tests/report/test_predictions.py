"""The page and the table of predictions, and the page's controls in a browser."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess

import pytest
from PIL import Image

from alfa.report import predictions as module
from alfa.report.predictions import Prediction, is_formula, predictions_csv, render_predictions_page

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
CLASSES = ("ant", "bee", "cat", "<dog>")


def picture(width: int = 20, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, 10), "red").save(file, kind)
    return file.getvalue()


FOUND = [
    Prediction("3.png", "cat", (0.1, 0.2, 0.6, 0.1), "cat", picture()),
    Prediction("1.png", "ant", (0.9, 0.06, 0.03, 0.01), "<dog>", picture(100, "JPEG")),
    Prediction("2.png", "bee", (0.25, 0.375, 0.125, 0.25), None, picture()),
]


def page(found: list[Prediction] = FOUND, **changes) -> str:
    support = {name: [(f"{name}/{n}.png", picture()) for n in range(3)] for name in CLASSES}
    options = {
        "support": support,
        "title": "A & B",
        "facts": {"run": "runs/<x>"},
        "notes": ["a.png: turned"],
        "command": "alfa adapt 'a b'",
    }
    return render_predictions_page(found, **{**options, **changes})


def test_the_csv_file_has_full_precision_and_every_name() -> None:
    odd = [Prediction('a, "b"\n.png', "bee", (0.1 + 0.2, 1e-20, 1 / 3, 0.0))]
    text = predictions_csv(odd, CLASSES)
    header, row = csv.reader(io.StringIO(text))
    assert header == ["file", "label", *(f"probability of {name}" for name in CLASSES)]
    assert row[:2] == ['a, "b"\n.png', "bee"]
    assert tuple(map(float, row[2:])) == odd[0].probabilities


@pytest.mark.parametrize("file", ["=1.png", "+1.png", "-1.png", "@1.png", "\t1.png"])
def test_a_file_name_that_is_a_formula_gets_a_prefix(file: str) -> None:
    assert is_formula(file)
    _, row = csv.reader(
        io.StringIO(predictions_csv([Prediction(file, "=bee", (1.0,))], ["=bee"])), strict=True
    )
    assert row == [f"./{file}", "=bee", "1.0"]


def test_the_page_needs_no_network() -> None:
    assert "//" not in "".join(re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)([^"']*)""", page()))
    assert "default-src 'none'" in page()
    assert "url(" not in page()
    assert "@import" not in page()


def test_names_and_titles_are_escaped() -> None:
    text = page()
    assert "&lt;dog&gt;" in text
    assert "<dog>" not in text
    assert "runs/&lt;x&gt;" in text
    assert "A &amp; B" in text


def test_the_most_probable_classes_and_the_true_class_have_bars() -> None:
    card = re.search(r"<li data-class=\"0\".*?</li>", page(), re.S)
    assert card is not None
    assert re.findall(r'<span title="([^"]*)">', card[0]) == ["ant", "bee", "&lt;dog&gt;"]
    assert "wrong; correct: &lt;dog&gt;" in card[0]
    assert "width:90.00%" in card[0]
    assert "data:image/jpeg" in card[0]


def test_the_number_of_pictures_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SHOWN", 2)
    monkeypatch.setattr(module, "MOST_OF_CLASS", 1)
    text = page()
    assert text.count("<img") == 2 + len(CLASSES)
    assert "shows the first 2" in text
    assert "and 2 more" in text
    assert "Predictions for 3 images<" in text


def test_a_page_without_true_classes_or_notes_omits_them() -> None:
    text = page([FOUND[2]], notes=[])
    assert 'id="kind"' not in text
    assert "note on the images" not in text
    assert "Predictions for 1 image<" in text


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_controls_filter_and_sort_the_page_in_a_browser(tmp_path) -> None:
    script = """
      const visible = () => [...document.querySelectorAll("#cards > li")]
        .filter(card => card.checkVisibility())
        .map(card => card.querySelector(".file").textContent);
      const set = (id, value) => {
        const field = document.getElementById(id);
        field.value = value;
        field.dispatchEvent(new Event("input"));
      };
      const all = visible();
      const steps = [["class", "1"], ["class", ""], ["kind", "wrong"], ["kind", "right"],
        ["kind", ""], ["find", "2"], ["find", ""], ["sort", "sure"], ["sort", "number"]];
      const after = steps.map(([id, value]) => { set(id, value); return visible().join(); });
      const tiny = document.querySelectorAll("img.tiny").length;
      return {all, after, tiny, narrow: document.documentElement.scrollWidth <= innerWidth};
    """
    watch = "<script>var faults = []; onerror = message => faults.push(message);</script>"
    ask = (
        "<script>addEventListener('load', () => { const answer = document.createElement('pre');"
        f"answer.textContent = JSON.stringify([(() => {{ {script} }})(), faults]);"
        "answer.id = 'answer'; document.body.append(answer); });</script>"
    )
    html = page().replace("<head>", f"<head>{watch}").replace("</body>", f"{ask}</body>")
    file = tmp_path / "page.html"
    file.write_text(html, encoding="utf-8")
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
    match = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.S)
    assert match is not None, done.stderr
    found, faults = json.loads(match[1].replace("&gt;", ">").replace("&amp;", "&"))
    assert faults == []
    assert found == {
        "all": ["1.png", "2.png", "3.png"],
        "after": [
            *("2.png", "1.png,2.png,3.png", "1.png", "3.png", "1.png,2.png,3.png"),
            *("2.png", "1.png,2.png,3.png", "2.png,3.png,1.png", "3.png,1.png,2.png"),
        ],
        "tiny": 14,
        "narrow": True,
    }
