"""User actions and their results."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from alfa.errors import AlfaError, ConfigError, DataError
from alfa.serve import _limits as limits
from alfa.serve._examples import pack_examples, unpack_examples
from alfa.serve._model import UploadedImage
from alfa.serve._session import NOT_LEARNED, Prediction, Session, Sessions
from alfa.serve._transfers import File, T, Transfers

# Numbers that order the states of a session; draw one only while the session is locked.
next_turn = itertools.count(1).__next__
_UNKNOWN = "the page sent an unknown action; reload it."


@dataclass(frozen=True)
class ActionResult:
    """The result of an action: messages, predictions, and a file as its token and name.

    The turn orders results.
    """

    done: Sequence[str] = ()
    problems: Sequence[str] = ()
    predictions: Sequence[Prediction] = ()
    file: tuple[str, str] | None = None
    turn: int = field(default_factory=next_turn, compare=False)


def _action(
    act: Callable[[Actions, Session, dict[str, Any]], ActionResult],
) -> Callable[..., ActionResult]:
    """Run an action on the locked session of a tab; errors become part of the result."""

    @functools.wraps(act)
    def run(self: Actions, session_id: str | None, data: Any = None) -> ActionResult:
        try:
            session = self.sessions.open(session_id)
            with session.lock:
                return act(self, session, data if isinstance(data, dict) else {})
        except AlfaError as error:
            return ActionResult(problems=[str(error)])

    return run


@dataclass(frozen=True)
class Actions:
    """All actions of the page, by the identifier of a session and the data of an event."""

    sessions: Sessions
    transfers: Transfers

    @_action
    def teach(self, session: Session, data: dict[str, Any]) -> ActionResult:
        """Change classes or examples."""
        # Images go to the class that was selected when the browser sent them.
        target = data.get("class") or session.selected
        match data.get("do"):
            case "add":
                session.add_class()
            case "rename":
                session.rename(data.get("class"), data.get("name"))
            case "remove":
                session.remove_class(data.get("class"))
            case "pick":
                session.select(data.get("class"))
            case "discard":
                session.remove_example(data.get("picture"))
            case "draw":
                session.add_example(target, session.model.drawn(data.get("strokes")))
            case "files":
                uploads = self._take_files(data, UploadedImage, limit=limits.MAX_IMAGES)
                added, problems = session.add_uploads(target, uploads)
                done = f"Added {_pictures(added)} to “{session.get_class(target).name}”."
                return ActionResult(done=[done] if added else [], problems=problems)
            case _:
                raise ConfigError(_UNKNOWN)
        return ActionResult()

    @_action
    def learn(self, session: Session, data: dict[str, Any]) -> ActionResult:
        """Adapt the model to the examples."""
        session.learn()
        return ActionResult()

    @_action
    def try_out(self, session: Session, data: dict[str, Any]) -> ActionResult:
        """Classify a drawing or files."""
        if data.get("do") == "draw":
            uploads = [UploadedImage("", session.model.drawn(data.get("strokes")))]
        else:
            uploads = self._take_files(data, UploadedImage, limit=limits.MAX_TRIED)
        problems = [upload.problem for upload in uploads if upload.pixels is None]
        images = [(upload.name, upload.pixels) for upload in uploads if upload.pixels is not None]
        predictions = session.predict(images) if images else []
        return ActionResult(problems=problems, predictions=predictions)

    @_action
    def keep(self, session: Session, data: dict[str, Any]) -> ActionResult:
        """Save or load examples, or export the model."""
        match data.get("do"):
            case "save":
                if not session.num_examples:
                    raise ConfigError("there are no pictures to save yet.")
                return self._offer(session, File("examples.zip", pack_examples(session.classes)))
            case "load":
                [file] = self._take_files(data, File, limit=1)
                session.replace(unpack_examples(file.content, name=file.name, model=session.model))
                pictures = _pictures(session.num_examples)
                done = f"Loaded {len(session.classes)} classes with {pictures}."
                return ActionResult(done=[done])
            case "export":
                if session.adapted is None:
                    raise ConfigError(NOT_LEARNED)
                content = session.adapted.to_onnx(session.adapted_names())
                return self._offer(session, File("model.onnx", content))
            case _:
                raise ConfigError(_UNKNOWN)

    def leave(self, session_id: str | None) -> None:
        """Close a session."""
        self.sessions.close(session_id)
        self.transfers.drop(session_id)
        self.transfers.expire()

    def _take_files(self, data: dict[str, Any], kind: type[T], *, limit: int) -> list[T]:
        tokens = data.get("files")
        if not isinstance(tokens, list) or not tokens:
            raise DataError("no file was sent; choose one.")
        if len(tokens) > limit:
            raise DataError(f"choose at most {limit} files at once, got {len(tokens)}.")
        return [self.transfers.take(token, kind) for token in tokens]

    def _offer(self, session: Session, file: File) -> ActionResult:
        """Offer a file for download, unless the user has closed the tab in the meantime."""
        if self.sessions.get(session.id) is None:
            return ActionResult()
        token = self.transfers.put(file, session_id=session.id)
        return ActionResult(done=[f"{file.name} is ready."], file=(token, file.name))


def _pictures(number: int) -> str:
    return f"{number} {'picture' if number == 1 else 'pictures'}"
