"""The actions of a user, and their results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from alfa.errors import AlfaError, ConfigError, DataError
from alfa.serve._examples import pack_examples, unpack_examples
from alfa.serve._limits import MAX_IMAGES, MAX_TRIED
from alfa.serve._model import UploadedImage
from alfa.serve._session import NOT_LEARNED, Prediction, Session
from alfa.serve._sessions import Sessions
from alfa.serve._transfers import File, Transfers

T = TypeVar("T", File, UploadedImage)

_TURNS = itertools.count(1)
_UNKNOWN = "the page does not know what to do; reload it."


def next_turn() -> int:
    """A number that orders the states of a session; taken while the session is locked."""
    return next(_TURNS)


@dataclass(frozen=True)
class ActionResult:
    """Sentences about what was done and what was not, predictions, and a file to download.

    The file has a token and a name. The turn orders the results.
    """

    done: Sequence[str] = ()
    problems: Sequence[str] = ()
    predictions: Sequence[Prediction] = ()
    file: tuple[str, str] | None = None
    turn: int = field(default_factory=next_turn, compare=False)


@dataclass(frozen=True)
class Actions:
    """All actions of the page; errors that the user can fix become part of the result."""

    sessions: Sessions
    transfers: Transfers
    can_export: bool = False

    def teach(self, session_id: str | None, data: Any) -> ActionResult:
        """Change classes or examples."""
        return self._in_session(session_id, data, self._change)

    def learn(self, session_id: str | None) -> ActionResult:
        """Adapt the model to the examples."""

        def learn(session: Session, _: dict[str, Any]) -> ActionResult:
            session.learn()
            return ActionResult()

        return self._in_session(session_id, {}, learn)

    def try_out(self, session_id: str | None, data: Any) -> ActionResult:
        """Classify a drawing or files."""
        return self._in_session(session_id, data, self._predict)

    def keep(self, session_id: str | None, data: Any) -> ActionResult:
        """Save or load examples, or export the model."""

        def keep(session: Session, data: dict[str, Any]) -> ActionResult:
            match data.get("do"):
                case "save":
                    return self._offer(session_id, self._save(session))
                case "export":
                    return self._offer(session_id, self._export(session))
                case "load":
                    return self._load(session, data)
                case _:
                    raise ConfigError(_UNKNOWN)

        return self._in_session(session_id, data, keep)

    def leave(self, session_id: str | None) -> None:
        """Close a session."""
        self.sessions.close(session_id)
        self.transfers.drop(session_id)
        self.transfers.expire()

    def _in_session(
        self,
        session_id: str | None,
        data: Any,
        act: Callable[[Session, dict[str, Any]], ActionResult],
    ) -> ActionResult:
        try:
            session = self.sessions.open(session_id)
            with session.lock:
                return act(session, data if isinstance(data, dict) else {})
        except AlfaError as error:
            return ActionResult(problems=[str(error)])

    def _take_files(self, data: dict[str, Any], kind: type[T], *, limit: int) -> list[T]:
        tokens = data.get("files")
        if not isinstance(tokens, list) or not tokens:
            raise DataError("there is no file; choose one.")
        if len(tokens) > limit:
            raise DataError(f"these are {len(tokens)} files; take {limit} at once at most.")
        return [self.transfers.take(token, kind) for token in tokens]

    def _change(self, session: Session, data: dict[str, Any]) -> ActionResult:
        # Images go to the class that was selected when they were sent.
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
                uploads = self._take_files(data, UploadedImage, limit=MAX_IMAGES)
                added, problems = session.add_uploads(target, uploads)
                done = f"{_pictures(added)} added to “{session.get_class(target).name}”."
                return ActionResult(done=[done] if added else [], problems=problems)
            case _:
                raise ConfigError(_UNKNOWN)
        return ActionResult()

    def _predict(self, session: Session, data: dict[str, Any]) -> ActionResult:
        if data.get("do") == "draw":
            uploads = [UploadedImage("", session.model.drawn(data.get("strokes")))]
        else:
            uploads = self._take_files(data, UploadedImage, limit=MAX_TRIED)
        problems = [upload.problem for upload in uploads if upload.pixels is None]
        images = [(upload.name, upload.pixels) for upload in uploads if upload.pixels is not None]
        found = session.predict(images) if images else []
        return ActionResult(problems=problems, predictions=found)

    def _save(self, session: Session) -> File:
        if not session.num_examples:
            raise ConfigError("there are no pictures to save yet.")
        return File("examples.zip", pack_examples(session.classes))

    def _load(self, session: Session, data: dict[str, Any]) -> ActionResult:
        [file] = self._take_files(data, File, limit=1)
        session.replace(unpack_examples(file.content, name=file.name, model=session.model))
        done = f"{len(session.classes)} classes with {_pictures(session.num_examples)} loaded."
        return ActionResult(done=[done])

    def _export(self, session: Session) -> File:
        if not self.can_export:
            raise ConfigError("the model cannot be exported here; `pip install 'alfa[export]'`.")
        if session.adapted is None:
            raise ConfigError(NOT_LEARNED)
        return File("model.onnx", session.adapted.to_onnx(session.adapted_names()))

    def _offer(self, session_id: str | None, file: File) -> ActionResult:
        """Offer a file for download, unless the tab was closed in the meantime."""
        if self.sessions.get(session_id) is None:
            return ActionResult()
        token = self.transfers.put(file, session_id=session_id)
        return ActionResult(done=[f"{file.name} is ready."], file=(token, file.name))


def _pictures(number: int) -> str:
    return f"{number} {'picture' if number == 1 else 'pictures'}"
