"""User actions and their results."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alfa import FewShotClassifier
from alfa.data import Strokes
from alfa.serve import Model
from alfa.serve._actions import ActionResult, Actions
from alfa.serve._html import render
from alfa.serve._limits import MAX_TRIED
from alfa.serve._model import AdaptedModel, UploadedImage
from alfa.serve._session import Session, Sessions
from alfa.serve._transfers import File, Transfers

RING = [[[0.2, 0.2], [0.8, 0.2], [0.8, 0.8], [0.2, 0.8], [0.2, 0.2]]]
CROSS = [[[0.2, 0.2], [0.8, 0.8]], [[0.8, 0.2], [0.2, 0.8]]]


@pytest.fixture
def actions(make_session: Callable[[], Session]) -> Actions:
    return Actions(Sessions(make_session), Transfers())


@pytest.fixture
def put(actions: Actions, model: Model) -> Callable[[str, bytes], str]:
    """Store an upload as the server does, and return its token."""
    return lambda name, content: actions.transfers.put(model.receive(name, content))


def test_draw_learn_and_try(actions: Actions) -> None:
    session = actions.sessions.open("me")
    assert actions.learn("me").problems == ["Add a few pictures to each class first."]
    actions.teach("me", {"do": "draw", "strokes": RING})
    actions.teach("me", {"do": "pick", "class": session.classes[1].number})
    actions.teach("me", {"do": "draw", "strokes": CROSS})
    assert [len(each.examples) for each in session.classes] == [1, 1]
    assert actions.learn("me") == ActionResult()
    [found] = actions.try_out("me", {"do": "draw", "strokes": CROSS}).predictions
    assert [name for _, name, _ in found.classes] == ["Class 2", "Class 1"]
    actions.leave("me")
    problems = actions.try_out("me", {"do": "draw", "strokes": CROSS}).problems
    assert problems == ["the model has not learned anything yet; press Learn first."]


def test_files_are_added_and_tried(
    actions: Actions, put: Callable[[str, bytes], str], pictures: list[list[bytes]]
) -> None:
    tokens = [put("a.png", pictures[0][0]), put("n.txt", b"hello"), put("b.png", pictures[0][1])]
    outcome = actions.teach("me", {"do": "files", "files": tokens})
    assert outcome.done == ["Added 2 pictures to “Class 1”."]
    assert outcome.problems == ["“n.txt” is not an image, or its format is not supported."]
    assert len(actions.transfers) == 0
    # Each file can be taken once.
    assert (
        "no longer available" in actions.teach("you", {"do": "files", "files": tokens}).problems[0]
    )
    actions.teach("me", {"do": "pick", "class": actions.sessions.open("me").classes[1].number})
    actions.teach("me", {"do": "draw", "strokes": CROSS})
    actions.learn("me")
    tokens = [put("n.txt", b"hello"), put("c.png", pictures[0][2])]
    outcome = actions.try_out("me", {"do": "files", "files": tokens})
    assert [each.name for each in outcome.predictions] == ["c.png"]
    assert len(outcome.problems) == 1
    tokens = [put("c.png", pictures[0][2]) for _ in range(MAX_TRIED + 1)]
    assert (
        "at most 12 files at once, got 13"
        in actions.try_out("me", {"do": "files", "files": tokens}).problems[0]
    )
    # A refused request keeps all files.
    assert len(actions.try_out("me", {"do": "files", "files": tokens[1:]}).predictions) == MAX_TRIED


def test_pictures_go_to_the_class_of_the_request(
    actions: Actions, put: Callable[[str, bytes], str], pictures: list[list[bytes]]
) -> None:
    first, second = actions.sessions.open("me").classes
    token = put("a.png", pictures[0][0])
    actions.teach("me", {"do": "pick", "class": second.number})
    outcome = actions.teach("me", {"do": "files", "class": first.number, "files": [token]})
    assert outcome.done == ["Added 1 picture to “Class 1”."]
    actions.teach("me", {"do": "draw", "class": first.number, "strokes": RING})
    assert (len(first.examples), len(second.examples)) == (2, 0)
    [problem] = actions.teach("me", {"do": "draw", "class": 999, "strokes": RING}).problems
    assert "no longer exists" in problem


def test_another_user_can_load_saved_examples(actions: Actions) -> None:
    assert "no pictures to save" in actions.keep("me", {"do": "save"}).problems[0]
    actions.teach("me", {"do": "draw", "strokes": RING})
    outcome = actions.keep("me", {"do": "save"})
    assert outcome.file is not None
    file = actions.transfers.take(outcome.file[0], File)
    assert file.name == outcome.file[1] == "examples.zip"
    token = actions.transfers.put(File("mine.zip", file.content))
    assert actions.keep("you", {"do": "load", "files": [token]}).done == [
        "Loaded 2 classes with 1 picture."
    ]
    assert actions.sessions.open("you").num_examples == 1
    token = actions.transfers.put(File("notes.txt", b"hello"))
    before = actions.sessions.open("you").classes
    assert "is damaged" in actions.keep("you", {"do": "load", "files": [token]}).problems[0]
    assert actions.sessions.open("you").classes is before


def test_the_exported_model_has_class_names(
    make_session: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AdaptedModel, "to_onnx", lambda _, names: ",".join(names).encode())
    actions = Actions(Sessions(make_session), Transfers())
    assert "has not learned anything" in actions.keep("me", {"do": "export"}).problems[0]
    for each in actions.sessions.open("me").classes:
        actions.teach("me", {"do": "pick", "class": each.number})
        actions.teach("me", {"do": "draw", "strokes": RING})
    actions.learn("me")
    outcome = actions.keep("me", {"do": "export"})
    assert outcome.file is not None
    assert actions.transfers.take(outcome.file[0], File).content == b"Class 1,Class 2"
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "alfa[export]" in actions.keep("me", {"do": "export"}).problems[0]


def test_leaving_drops_transfers(actions: Actions) -> None:
    actions.teach("me", {"do": "draw", "strokes": RING})
    assert actions.keep("me", {"do": "save"}).file is not None
    empty = UploadedImage("a.png", problem="“a.png” is an empty file.")
    actions.transfers.put(empty, session_id="me")
    actions.transfers.put(empty, session_id="you")
    actions.leave("me")
    assert len(actions.transfers) == 1


def test_leaving_during_an_export_drops_the_file(
    make_session: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_onnx(adapted: AdaptedModel, names: Any) -> bytes:
        actions.leave("me")
        return b"content"

    monkeypatch.setattr(AdaptedModel, "to_onnx", to_onnx)
    actions = Actions(Sessions(make_session), Transfers())
    for each in actions.sessions.open("me").classes:
        actions.teach("me", {"do": "draw", "class": each.number, "strokes": RING})
    actions.learn("me")
    assert actions.keep("me", {"do": "export"}) == ActionResult()
    assert len(actions.sessions) == len(actions.transfers) == 0


def test_concurrent_sessions_get_their_own_predictions(
    actions: Actions, model: Model, run: Path
) -> None:
    """Eight threads with one session each; all have different characters."""

    def visit(number: int) -> tuple[list[tuple[str, float]], np.ndarray]:
        who, way = f"p{number}", 2 + number % 3
        images = Strokes(num_classes=way, num_examples=4, size=16, seed=number).images().images
        images = images.reshape(way, 4, 16, 16)
        session = actions.sessions.open(who)
        for place in range(way):
            if place > 1:
                actions.teach(who, {"do": "add"})
            target = session.classes[place].number
            name = f"{who} {place}"
            actions.teach(who, {"do": "rename", "class": target, "name": name})
            seen = [UploadedImage("x.png", image[None]) for image in images[place, :3]]
            tokens = [actions.transfers.put(each, session_id=who) for each in seen]
            told = actions.teach(who, {"do": "files", "class": target, "files": tokens})
            assert told.done == [f"Added 3 pictures to “{name}”."]
        assert actions.learn(who) == ActionResult()
        token = actions.transfers.put(UploadedImage("new.png", images[0, 3][None]), session_id=who)
        [found] = actions.try_out(who, {"do": "files", "files": [token]}).predictions
        return sorted((name, probability) for _, name, probability in found.classes), images

    with ThreadPoolExecutor(8) as pool:
        visits = list(pool.map(visit, range(8)))
    for number, (told, images) in enumerate(visits):
        way = len(images)
        support = list(images[:, :3].reshape(-1, 16, 16))
        clf = FewShotClassifier(run).fit(support, np.repeat(np.arange(way), 3))
        [expected] = clf.predict_proba([images[0, 3]])
        assert told == [(f"p{number} {place}", expected[place]) for place in range(way)]
    assert len(actions.transfers) == 0


@pytest.mark.parametrize("data", [None, {}, [], "x", {"do": 3}, {"do": ["add"]}, {"do": "files"}])
def test_invalid_requests_return_a_problem(actions: Actions, data: Any) -> None:
    for act in (actions.teach, actions.try_out, actions.keep):
        [problem] = act("me", data).problems
        assert problem.endswith(".")


def test_user_text_is_escaped(actions: Actions) -> None:
    session = actions.sessions.open("me")
    # Validation rejects these names; escaping must not depend on it.
    for each in session.classes:
        each.name = f"<img src=x onerror=alert({each.number})>\"'"
        actions.teach("me", {"do": "pick", "class": each.number})
        actions.teach("me", {"do": "draw", "strokes": RING})
    actions.learn("me")
    found = actions.try_out("me", {"do": "draw", "strokes": RING}).predictions
    texts = [render(part, session) for part in ("classes", "target", "learned", "rates")]
    texts.append(render("predictions", found))
    texts.append(render("notice", ActionResult(problems=[session.classes[0].name])))
    for text in texts:
        assert "<img src=x" not in text
    assert "&lt;img src=x" in texts[0]
    assert "onerror=alert(1)&gt;&#34;" in texts[0]
