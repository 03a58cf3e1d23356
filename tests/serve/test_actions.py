"""What people do on the page, and what they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from alfa.serve import Counter, People, Session
from alfa.serve import _html as html
from alfa.serve._actions import Actions, Outcome
from alfa.serve._limits import MAX_TRIED

RING = [[[0.2, 0.2], [0.8, 0.2], [0.8, 0.8], [0.2, 0.8], [0.2, 0.2]]]
CROSS = [[[0.2, 0.2], [0.8, 0.8]], [[0.8, 0.2], [0.2, 0.8]]]


@pytest.fixture
def actions(make_session: Callable[[], Session]) -> Actions:
    return Actions(People(make_session), Counter())


def test_somebody_draws_learns_and_tries(actions: Actions) -> None:
    session = actions.people.session("me")
    assert actions.learn("me").problems == ["Give each class a few pictures first."]
    actions.teach("me", {"do": "draw", "strokes": RING})
    actions.teach("me", {"do": "pick", "class": session.classes[1].number})
    actions.teach("me", {"do": "draw", "strokes": CROSS})
    assert [len(each.pictures) for each in session.classes] == [1, 1]
    assert actions.learn("me") == Outcome()
    [found] = actions.try_out("me", {"do": "draw", "strokes": CROSS}).predictions
    assert [name for _, name, _ in found.classes] == ["Class 2", "Class 1"]
    actions.leave("me")
    problems = actions.try_out("me", {"do": "draw", "strokes": CROSS}).problems
    assert problems == ["nothing has been learnt yet; press Learn first."]


def test_files_are_added_and_tried(actions: Actions, pictures: list[list[bytes]]) -> None:
    put = actions.counter.put
    tokens = [put("a.png", pictures[0][0]), put("n.txt", b"hello"), put("b.png", pictures[0][1])]
    outcome = actions.teach("me", {"do": "files", "files": tokens})
    assert outcome.done == ["2 pictures added to “Class 1”."]
    assert outcome.problems == ["“n.txt” is not an image, or of a format that is not read."]
    assert len(actions.counter) == 0
    # What was taken cannot be taken by somebody else.
    assert (
        "not there any more" in actions.teach("you", {"do": "files", "files": tokens}).problems[0]
    )
    actions.teach("me", {"do": "pick", "class": actions.people.session("me").classes[1].number})
    actions.teach("me", {"do": "draw", "strokes": CROSS})
    actions.learn("me")
    tokens = [put("n.txt", b"hello"), put("c.png", pictures[0][2])]
    outcome = actions.try_out("me", {"do": "files", "files": tokens})
    assert [each.name for each in outcome.predictions] == ["c.png"]
    assert len(outcome.problems) == 1
    tokens = [put("c.png", pictures[0][2]) for _ in range(MAX_TRIED + 1)]
    assert "13 files" in actions.try_out("me", {"do": "files", "files": tokens}).problems[0]


def test_pictures_go_to_the_class_that_they_set_out_for(
    actions: Actions, pictures: list[list[bytes]]
) -> None:
    first, second = actions.people.session("me").classes
    token = actions.counter.put("a.png", pictures[0][0])
    actions.teach("me", {"do": "pick", "class": second.number})
    outcome = actions.teach("me", {"do": "files", "class": first.number, "files": [token]})
    assert outcome.done == ["1 picture added to “Class 1”."]
    actions.teach("me", {"do": "draw", "class": first.number, "strokes": RING})
    assert (len(first.pictures), len(second.pictures)) == (2, 0)
    [problem] = actions.teach("me", {"do": "draw", "class": 999, "strokes": RING}).problems
    assert "not there any more" in problem


def test_examples_are_saved_and_loaded_by_somebody_else(actions: Actions) -> None:
    assert "no pictures to save" in actions.keep("me", {"do": "save"}).problems[0]
    actions.teach("me", {"do": "draw", "strokes": RING})
    outcome = actions.keep("me", {"do": "save"})
    assert outcome.file is not None
    parcel = actions.counter.take(outcome.file[0])
    assert parcel.name == outcome.file[1] == "examples.zip"
    token = actions.counter.put("mine.zip", parcel.content)
    assert actions.keep("you", {"do": "load", "files": [token]}).done == [
        "2 classes with 1 picture loaded."
    ]
    assert actions.people.session("you").num_pictures == 1
    token = actions.counter.put("notes.txt", b"hello")
    before = actions.people.session("you").classes
    assert "is damaged" in actions.keep("you", {"do": "load", "files": [token]}).problems[0]
    assert actions.people.session("you").classes is before


def test_the_model_is_handed_out_with_its_names(make_session: Callable[[], Session]) -> None:
    def export(learnt: Any, names: Any) -> bytes:
        return ",".join(names).encode()

    actions = Actions(People(make_session), Counter(), export=export)
    assert "nothing has been learnt" in actions.keep("me", {"do": "export"}).problems[0]
    for each in actions.people.session("me").classes:
        actions.teach("me", {"do": "pick", "class": each.number})
        actions.teach("me", {"do": "draw", "strokes": RING})
    actions.learn("me")
    outcome = actions.keep("me", {"do": "export"})
    assert outcome.file is not None
    assert actions.counter.take(outcome.file[0]).content == b"Class 1,Class 2"
    without = Actions(actions.people, Counter())
    assert "alfa[export]" in without.keep("me", {"do": "export"}).problems[0]


@pytest.mark.parametrize("data", [None, {}, [], "x", {"do": 3}, {"do": ["add"]}, {"do": "files"}])
def test_nonsense_is_answered_by_a_sentence(actions: Actions, data: Any) -> None:
    for act in (actions.teach, actions.try_out, actions.keep):
        [problem] = act("me", data).problems
        assert problem.endswith(".")


def test_what_somebody_typed_cannot_become_markup(actions: Actions) -> None:
    session = actions.people.session("me")
    # No class can be called so, but if one could, it would still be text.
    for each in session.classes:
        each.name = f"<img src=x onerror=alert({each.number})>\"'"
        actions.teach("me", {"do": "pick", "class": each.number})
        actions.teach("me", {"do": "draw", "strokes": RING})
    actions.learn("me")
    found = actions.try_out("me", {"do": "draw", "strokes": RING}).predictions
    texts = [
        html.classes(session),
        html.target(session),
        html.learnt(session),
        html.rates(session),
        html.predictions(found),
        html.notice([session.classes[0].name], is_problem=True),
    ]
    for text in texts:
        assert "<img src=x" not in text
    assert "&lt;img src=x" in texts[0]
    assert "onerror=alert(1)&gt;&quot;" in texts[0]


def test_the_page_says_how_many_there_can_be(session: Session) -> None:
    assert html.limits(session.model).startswith("Make 2 to 20 classes")
    assert "50 the most (200 in all)" in html.limits(session.model)
    assert "up to 10 MB each" in html.files_hint()
