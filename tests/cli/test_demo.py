"""`alfa demo`: a self-contained page, and no damage to existing files."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from alfa.cli import demo
from alfa.cli.main import main
from alfa.errors import AlfaError, DivergedError
from alfa.runs import Run
from alfa.training import train_run

with_locks = pytest.mark.skipif(os.name != "posix", reason="locks require POSIX")


SMALL = ("outer.num_val_tasks=4", "test.num_tasks=5", "model.hidden=[8,8]")
SETTINGS = [word for setting in SMALL for word in ("--set", setting)]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory):
    """The folder of a short demo, and its exit code, standard output, and standard error."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    words = ["demo", "--iterations", "30", "--out", str(folder), "--json", *SETTINGS]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as caught:
        main(words)
    return folder, (caught.value.code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def page(first) -> str:
    return (first[0] / "report.html").read_text()


def test_json_is_all_that_is_printed(first) -> None:
    out, answer = first
    code, printed, err = answer
    assert (code, err) == (0, "")
    content = json.loads(printed)
    assert set(content) == {"MAML", "ALFA + MAML", "report"}
    assert Path(content["report"]) == out / "report.html"
    for title, name in (("MAML", "maml"), ("ALFA + MAML", "alfa+maml")):
        assert content[title] == json.loads((out / name / "result.json").read_text())
        assert content[title]["num_iterations"] == 30


def test_the_page_stands_alone(page: str) -> None:
    sources = re.findall(r"""(?:src|href|action|data|poster)\s*=\s*["']([^"']*)""", page)
    assert sources
    assert all(source.startswith("data:image/") for source in sources)
    assert "http://" not in page
    assert "https://" not in page
    assert not re.search(r"<(script|link|iframe|object|embed)\b|@import|url\(|file:", page)


def test_the_page_shows_both_methods_and_their_figures(first, page: str) -> None:
    rows = re.findall(r"<tr><td>(.*?)</td>\s*<td>(.*?)</td>", page)
    results = json.loads(first[1][1])
    assert rows == [
        (title, f"{results[title]['test']['loss']:.3f}") for title in ("MAML", "ALFA + MAML")
    ]


def test_the_page_holds_three_figures(page: str) -> None:
    images = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', page)
    drawings = [base64.b64decode(image, validate=True).decode() for image in images]
    assert len(drawings) == 3
    assert all("<svg" in drawing and drawing.rstrip().endswith("</svg>") for drawing in drawings)
    assert "unseen task 1" in drawings[0]
    assert "outer iteration" in drawings[1]
    assert "inner step" in drawings[2]
    references = [
        target for drawing in drawings for target in re.findall(r'href="([^"]*)"', drawing)
    ]
    assert all(target.startswith(("#", "data:")) for target in references)


def test_the_page_says_how_it_was_made(page: str) -> None:
    assert "<code>alfa demo --iterations 30 --seed 0 --set outer.num_val_tasks=4 " in page


def test_the_picture_is_a_png(first) -> None:
    content = (first[0] / "tasks.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content[12:16] == b"IHDR"
    assert b"IEND" in content[-12:]


def test_a_second_demo_replaces_the_first(
    first, alfa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_here(experiments, out: Path, *, quiet: bool) -> None:
        for name, experiment in experiments.items():
            train_run(Run.new(out / name, experiment))

    monkeypatch.setattr("alfa.cli.demo._train_in_parallel", train_here)
    out = Path(shutil.copytree(first[0], tmp_path / "out"))

    answer = alfa("demo", "--iterations", "1", "--out", out, *SETTINGS)

    assert answer.code == 0
    assert "ALFA + MAML" in answer.out
    assert "0.75 +- 0.15" in answer.out
    assert {path.name for path in out.iterdir()} == {path.name for path in first[0].iterdir()}
    page = (out / "report.html").read_text()
    assert "alfa demo --iterations 1 --seed 0 --set outer.num_val_tasks=4 " in page
    assert Run(out / "alfa+maml").result["num_iterations"] == 1


@pytest.mark.parametrize("beside", [[], ["report.html"]], ids=["alone", "beside-a-report"])
def test_a_folder_with_other_content_is_refused_and_kept(
    refused, contents, tmp_path: Path, beside: list[str]
) -> None:
    for name in ["thesis.tex", *beside]:
        (tmp_path / name).write_text("years of work")
    before = contents(tmp_path)
    assert "contains other files than a demo" in refused(
        "demo", "--iterations", "1", "--out", tmp_path
    )
    assert contents(tmp_path) == before


def test_the_root_of_a_disk_is_no_place_for_a_demo(refused) -> None:
    told = refused("demo", "--out", "/", "--iterations", "1")
    assert "/ contains other files than a demo; choose another folder with --out." in told


def test_a_file_in_the_place_of_the_folder_is_refused_and_kept(refused, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("mine")
    assert "contains other files than a demo" in refused("demo", "--out", path)
    assert path.read_text() == "mine"


def test_runs_that_were_trained_by_themselves_are_kept(
    refused, contents, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_training(*args: object, **kwargs: object) -> None:
        raise AssertionError("the folder was cleared")

    # A run with the same name as a run of the demo.
    shutil.copytree(trained, tmp_path / "runs" / "maml")
    before = contents(tmp_path)
    monkeypatch.setattr("alfa.cli.demo._train_in_parallel", no_training)
    refused("demo", "--iterations", "1", "--out", tmp_path / "runs")
    assert contents(tmp_path) == before


@with_locks
def test_a_demo_that_is_being_made_is_left_alone(first, refused, contents, tmp_path: Path) -> None:
    out = Path(shutil.copytree(first[0], tmp_path / "out"))
    with Run(out / "alfa+maml").files.lock():
        before = contents(out)
        assert "another demo is writing to" in refused("demo", "--iterations", "1", "--out", out)
        assert contents(out) == before


@with_locks
def test_a_demo_that_is_not_complete_yet_is_left_alone(first, refused, contents, tmp_path) -> None:
    out = Path(shutil.copytree(first[0], tmp_path / "out"))
    with demo._locked(out):
        before = contents(out)
        assert "another demo is writing to" in refused("demo", "--iterations", "1", "--out", out)
        assert contents(out) == before


def test_processes_of_a_demo_end_with_it_and_ignore_ctrl_c(monkeypatch) -> None:
    watched = []
    monkeypatch.setattr("alfa._runtime.leave_with_parent", watched.append)
    monkeypatch.setattr(demo, "_worker", None, raising=False)
    before = signal.getsignal(signal.SIGINT)
    try:
        demo._start_worker(None, None, 1234)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert watched == [1234]


def test_when_one_training_fails_the_other_is_stopped(monkeypatch, tmp_path: Path) -> None:
    class Threads(ThreadPoolExecutor):
        def __init__(self, count, *, mp_context, initializer, initargs) -> None:
            super().__init__(count)
            demo._worker = initargs[:2]

    stopped = []

    def train(name, experiment, out) -> None:
        if name == "maml":
            raise DivergedError("the loss is not finite.")
        stopped.append(demo._worker[1].wait(60))

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", Threads)
    monkeypatch.setattr(demo, "_worker", None, raising=False)
    monkeypatch.setattr(demo, "_train", train)
    with pytest.raises(AlfaError, match=r"^MAML: the loss is not finite\.$"):
        demo._train_in_parallel({"maml": None, "alfa+maml": None}, tmp_path, quiet=True)
    assert stopped == [True]
