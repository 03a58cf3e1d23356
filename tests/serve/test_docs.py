"""The examples of docs/serve.md run as they are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"
ADDRESS = "http://127.0.0.1:7860"


def block(title: str, language: str) -> str:
    """Return the first code block below a title."""
    section = PAGE.read_text().split(f"### {title}\n")[1]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def folder(
    tmp_path: Path, photos: list[list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The working directory of the examples, with photos."""
    for name, own in zip(("cat", "dog"), photos, strict=False):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number, content in enumerate(own[:4]):
            (tmp_path / "photos" / name / f"{number}.jpg").write_bytes(content)
    (tmp_path / "new.jpg").write_bytes(photos[1][5])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_the_example_with_curl_runs(folder: Path, photo_server: Any) -> None:
    pytest.importorskip("onnxruntime", reason="needs pip install 'alfa[export]'")
    text = block("With curl", "sh")
    assert f"server={ADDRESS}\n" in text
    text = text.replace(ADDRESS, photo_server.address)
    sessions = photo_server.app.state.service.sessions
    before = len(sessions)
    done = subprocess.run(["bash", "-eu", "-c", text], capture_output=True, text=True, check=True)
    reader = json.JSONDecoder()
    answers, rest = [], done.stdout
    while rest:
        answer, end = reader.raw_decode(rest)
        answers.append(answer)
        rest = rest[end:]
    learned, predictions, ranked = answers
    assert learned["learned"]["accuracy"]["num_examples"] == 8
    assert predictions["predictions"][0]["probabilities"][0]["name"] == "dog"
    assert [each["usefulness"] for each in ranked["unlabeled"]] == [1.0, 0.5]
    with zipfile.ZipFile(folder / "classifier.zip") as archive:
        assert "examples/cat/0.jpg" in archive.namelist()
    assert (folder / "model.onnx").stat().st_size > 1000
    assert len(sessions) == before


def test_the_example_with_python_runs(
    folder: Path, photo_server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    text = block("With Python", "python")
    assert ADDRESS in text
    names: dict[str, Any] = {}
    exec(compile(text.replace(ADDRESS, photo_server.address), "docs/serve.md", "exec"), names)
    names["web"].close()
    accuracy, first, second, label = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"about \d+ %, between \d+ and \d+ %, from your 8 photos", accuracy)
    assert first.startswith("dog ")
    assert second.startswith("cat ")
    assert label == "dog"


def test_the_application_is_mounted(photos: list[list[bytes]]) -> None:
    from starlette.testclient import TestClient

    names: dict[str, Any] = {}
    exec(compile(block("In another application", "python"), "docs/serve.md", "exec"), names)
    with TestClient(names["app"], base_url="https://photos.example.org") as web:
        assert web.get("/classify/api/v1/health").json()["status"] == "ok"
        assert web.get("/classify").url.path == "/classify/"


def test_every_endpoint_is_described(photo_server: Any) -> None:
    section = PAGE.read_text().split("### Requests and answers")[1].split("###")[0]
    for path in photo_server.app.openapi()["paths"]:
        last = [part for part in path.split("/") if not part.startswith("{")][-1]
        assert last in section
