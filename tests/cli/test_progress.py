"""What is shown of work that takes long."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from alfa.cli import progress
from alfa.cli.progress import _Bars, _Lines, meter, show_training
from alfa.train import Progress, Work


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(clock):
    """A meter that writes lines, at a time that the test sets, and the lines so far."""
    file = io.StringIO()
    shown = _Lines("run", Console(file=file), clock)
    return shown, lambda: file.getvalue().splitlines()


def test_a_line_now_and_then(lines, clock) -> None:
    shown, told = lines
    for done in range(31):
        shown.update("testing", done, 60, unit="tasks")
        clock.now += 1
    assert told() == [
        "run: testing, 11 of 60 tasks, 1 tasks/s, 49 s left",
        "run: testing, 22 of 60 tasks, 1 tasks/s, 38 s left",
    ]


def test_lines_become_rarer(lines, clock) -> None:
    shown, told = lines
    for second in range(10_000):
        shown.update("run", second, 10_000, unit="it")
        clock.now += 1
    assert 80 < len(told()) < 120
    assert told()[-1] == "run: 9,762 of 10,000 it, 1 it/s, 4 min left"


def test_news_are_a_line_at_once_and_so_is_the_end(lines, clock) -> None:
    shown, told = lines
    shown.update("run", 400, 1000, unit="it")
    clock.now += 2
    shown.update("run", 500, 1000, unit="it", note="validation loss 1.000")
    clock.now += 2
    shown.update("run", 600, 1000, unit="it")
    clock.now += 4
    shown.update("run", 1000, 1000, unit="it")
    assert told() == [
        "run: 500 of 1,000 it, 50 it/s, 10 s left, validation loss 1.000",
        "run: 1,000 of 1,000 it, 75 it/s",
    ]


def test_what_begins_again_is_measured_anew(lines, clock) -> None:
    shown, told = lines
    for _ in range(2):
        shown.update("validating", 0, 600, unit="tasks")
        clock.now += 20
        shown.update("validating", 200, 600, unit="tasks")
        clock.now += 500
    assert told() == ["run: validating, 200 of 600 tasks, 10 tasks/s, 40 s left"] * 2


@pytest.mark.parametrize("passing", [True, False])
def test_what_is_short_has_a_line_at_its_end_unless_it_passes(lines, clock, passing: bool) -> None:
    shown, told = lines
    for done in (1, 9, 9):
        shown.update("validating", done, 9, unit="tasks", passing=passing)
        clock.now += 1
    assert told() == ([] if passing else ["run: validating, 9 of 9 tasks, 8 tasks/s"])


def test_bytes_are_megabytes_and_a_total_may_be_unknown(lines, clock) -> None:
    shown, told = lines
    for total in (None, 40_000_000):
        shown.update("a.zip", 0, total, unit="bytes")
        clock.now += 20
        shown.update("a.zip", 5_000_000, total, unit="bytes")
        clock.now += 1
    assert told() == [
        "run: a.zip, 5.0 MB, 0.25 MB/s",
        "run: a.zip, 5.0 of 40.0 MB, 0.25 MB/s, 140 s left".replace("140 s", "2 min"),
    ]


def test_a_sentence_is_taken_as_it_is(lines) -> None:
    shown, told = lines
    shown.tell("[bold]cat[/] and " + 200 * "x")
    assert told() == ["run: [bold]cat[/] and " + 200 * "x"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (99, "99 s"), (120, "2 min"), (7200, "2.0 h")]
)
def test_a_time_is_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert progress.duration_text(seconds) == text


@pytest.fixture
def screen():
    """A terminal, and the text on it."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=150)
    return console, lambda: re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())


def test_bars_show_counts_and_news(screen) -> None:
    console, text = screen
    bars = _Bars("run", console)
    bars.update("run", 0, 1000, unit="it")
    bars.update("run", 500, 1000, unit="it", note="validation loss 1.000")
    bars.update("a.zip", 2_000_000, 4_000_000, unit="bytes")
    bars.tell("a sentence")
    bars.stop()
    for expected in ("500 of 1,000 it", "validation loss 1.000", "2.0 of 4.0 MB", "a sentence"):
        assert expected in text()


def test_a_passing_bar_goes_when_it_is_done_and_may_come_again(screen) -> None:
    console, _ = screen
    bars = _Bars("run", console)
    bars.update("run", 1, 2, unit="it")
    for _ in range(2):
        bars.update("validating", 3, 9, unit="tasks", passing=True)
        assert [task.description for task in bars._bars.tasks] == ["run", "validating"]
        bars.update("validating", 9, 9, unit="tasks", passing=True)
        assert [task.description for task in bars._bars.tasks] == ["run"]
    bars.update("run", 2, 2, unit="it")
    bars.update("run", 1, 2, unit="it")
    assert [task.completed for task in bars._bars.tasks] == [1]
    bars.stop()


def test_what_an_earlier_run_did_is_no_part_of_the_rate(screen) -> None:
    console, _ = screen
    bars = _Bars("run", console)
    bars.update("run", 900, 1000, unit="it")
    assert bars._bars.tasks[0].speed is None
    bars.stop()


def test_nothing_is_drawn_before_there_is_something_to_show(screen) -> None:
    console, text = screen
    _Bars("run", console).stop()
    assert text() == ""


def test_a_quiet_meter_shows_nothing(capsys) -> None:
    with meter("run", quiet=True) as shown:
        shown.tell("a sentence")
        shown.update("run", 1, 1, unit="it", note="news")
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_there_are_lines(capsys) -> None:
    with meter("run") as shown:
        shown.update("run", 1, 3, unit="it", note="news")
    assert capsys.readouterr().err == "run: 1 of 3 it, news\n"


def test_in_a_terminal_there_are_bars(monkeypatch, capsys) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with meter("run") as shown:
        assert isinstance(shown, _Bars)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("record", "note"),
    [
        ({"val_loss": 1.5, "val_accuracy": 0.5}, "validation accuracy 50.00 %"),
        ({"val_loss": 1.5}, "validation loss 1.500"),
        ({"val_loss": None}, "validation loss not finite"),
    ],
)
def test_training_tells_its_newest_figure(lines, record: dict, note: str) -> None:
    shown, told = lines
    show_training(shown, "run")(Progress(5, 10, record=record))
    assert told() == [f"run: 5 of 10 it, {note}"]


def test_training_tells_messages_and_validations(lines, clock) -> None:
    shown, told = lines
    show = show_training(shown, "run")
    show(Progress(0, 10, message="memory: store"))
    show(Progress(0, 10, work=Work("validating", 0, 40)))
    clock.now += 20
    show(Progress(0, 10, work=Work("validating", 20, 40)))
    assert told() == ["run: memory: store", "run: validating, 20 of 40 tasks, 1 tasks/s, 20 s left"]
