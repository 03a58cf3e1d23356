"""Progress of long work."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from alfa.cli import progress
from alfa.cli.progress import Meter, meter, show_training
from alfa.training import Progress, Work


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(clock):
    """A meter that prints lines at the time of the test clock, and a function that returns them."""
    file = io.StringIO()
    shown = Meter("run", Console(file=file), clock, use_bars=False)
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


def test_the_rate_is_that_of_the_last_minutes(lines, clock) -> None:
    shown, told = lines
    shown.update("run", 0, 100_000, unit="it")
    done = 0
    # One iteration per second for an hour, a pause of an hour, and then ten per second.
    for pace, pause in ((1, 0), (10, 3600)):
        clock.now += pause
        for _ in range(3600):
            clock.now += 1
            done += pace
            shown.update("run", done, 100_000, unit="it")
        assert f", {pace} it/s, " in told()[-1]
    # 65,220 iterations at ten per second.
    assert told()[-1] == "run: 34,780 of 100,000 it, 10 it/s, 1.8 h left"


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


@pytest.mark.parametrize("transient", [True, False])
def test_short_work_has_a_line_at_its_end_unless_it_is_transient(
    lines, clock, transient: bool
) -> None:
    shown, told = lines
    for done in (1, 9, 9):
        shown.update("validating", done, 9, unit="tasks", transient=transient)
        clock.now += 1
    assert told() == ([] if transient else ["run: validating, 9 of 9 tasks, 8 tasks/s"])


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
    shown.print("[bold]cat[/] and " + 200 * "x")
    assert told() == ["run: [bold]cat[/] and " + 200 * "x"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (99, "99 s"), (120, "2 min"), (7200, "2.0 h")]
)
def test_a_time_is_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert progress.duration_text(seconds) == text


@pytest.fixture
def screen(clock):
    """A meter with bars in a terminal, and a function that returns the text."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80)
    shown = Meter("run", console, clock, use_bars=True)
    yield shown, lambda: re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    shown.bars.stop()


def test_a_bar_is_one_line_with_its_rate_and_the_time_left(screen, clock) -> None:
    bars, text = screen
    bars.update("run", 9_000, 50_000, unit="it")
    clock.now += 1000
    bars.update("run", 12_000, 50_000, unit="it", note="validation accuracy 61.23 %")
    bars.update("a[/b].zip", 2_000_000, 4_000_000, unit="bytes")
    bars.bars.stop()
    lines = [" ".join(line.split()) for line in text().splitlines()]
    assert "run: 12,000 of 50,000 it, validation accuracy 61.23 %" in lines
    assert any(re.fullmatch(r"run \S+ 12,000 of 50,000 it 3 it/s, 3\.5 h left", x) for x in lines)
    assert any(re.fullmatch(r"a\[/b\]\.zip \S+ 2\.0 of 4\.0 MB", x) for x in lines)


def test_a_transient_bar_goes_when_it_is_done_and_may_come_again(screen) -> None:
    bars, _ = screen

    def names() -> list[str]:
        return [task.description for task in bars.bars.tasks]

    bars.update("run", 1, 2, unit="it")
    for _ in range(2):
        bars.update("validating", 3, 9, unit="tasks", transient=True)
        assert names() == ["run", "validating"]
        bars.update("validating", 9, 9, unit="tasks", transient=True)
        assert names() == ["run"]
    bars.update("run", 2, 2, unit="it")
    bars.update("run", 1, 2, unit="it")
    assert [task.completed for task in bars.bars.tasks] == [1]


def test_what_an_earlier_run_did_is_no_part_of_the_rate(screen, clock) -> None:
    bars, _ = screen
    bars.update("run", 900, 1000, unit="it")
    assert bars.bars.tasks[0].fields["pace"] == ""
    clock.now += 10
    bars.update("run", 950, 1000, unit="it")
    assert bars.bars.tasks[0].fields["pace"] == "5 it/s, 10 s left"


def test_nothing_is_drawn_before_there_is_something_to_show(screen) -> None:
    bars, text = screen
    bars.bars.stop()
    assert text() == ""


def test_a_quiet_meter_shows_nothing(capsys) -> None:
    with meter("run", quiet=True) as shown:
        shown.print("a sentence")
        shown.update("run", 1, 1, unit="it", note="news")
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_there_are_lines_also_where_colours_are_forced(
    monkeypatch, capsys
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with meter("run") as shown:
        assert shown.bars is None
        shown.update("run", 1, 3, unit="it", note="news")
    assert capsys.readouterr().err == "run: 1 of 3 it, news\n"


@pytest.mark.parametrize(("kind", "has_bars"), [("xterm", True), ("dumb", False)])
def test_a_terminal_has_bars_if_it_can_draw_them(monkeypatch, kind: str, has_bars: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", kind)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    with meter("run") as shown:
        assert (shown.bars is not None) == has_bars


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


def test_two_runs_in_one_meter_keep_their_validations_apart(lines, clock) -> None:
    shown, told = lines
    first, second = (show_training(shown, name) for name in ("MAML", "ALFA"))
    for done in (0, 150, 300):
        first(Progress(0, 10, work=Work("validating", done, 600)))
        second(Progress(0, 10, work=Work("validating", done // 3, 600)))
        clock.now += 15
    second(Progress(0, 10, message="memory: store"))
    assert told() == [
        "run: MAML, validating, 150 of 600 tasks, 10 tasks/s, 45 s left",
        "run: ALFA, validating, 50 of 600 tasks, 3.3 tasks/s, 3 min left",
        "run: MAML, validating, 300 of 600 tasks, 10 tasks/s, 30 s left",
        "run: ALFA, validating, 100 of 600 tasks, 3.3 tasks/s, 2 min left",
        "run: ALFA, memory: store",
    ]
