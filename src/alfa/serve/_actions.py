"""What somebody does on the page, and what they are told of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from alfa.errors import AlfaError, ConfigError, DataError
from alfa.serve._examples import packed, unpacked
from alfa.serve._export import Export
from alfa.serve._limits import MAX_PICTURES, MAX_TRIED
from alfa.serve._model import Seen
from alfa.serve._people import Counter, File, People
from alfa.serve._session import Prediction, Session

T = TypeVar("T", File, Seen)

_TURNS = itertools.count(1)
_UNKNOWN = "the page does not know what to do; reload it."


def next_turn() -> int:
    """A number for what follows from somebody's session; taken while that cannot change."""
    return next(_TURNS)


@dataclass(frozen=True)
class Outcome:
    """What came of an action.

    Attributes:
        done: sentences about what was done.
        problems: sentences about what was not.
        predictions: what the model says of pictures that were tried.
        file: of a file that is ready, what it is asked for by, and its name.
        turn: later ones are larger.
    """

    done: Sequence[str] = ()
    problems: Sequence[str] = ()
    predictions: Sequence[Prediction] = ()
    file: tuple[str, str] | None = None
    turn: int = field(default_factory=next_turn, compare=False)


@dataclass(frozen=True)
class Actions:
    """Everything that the page can do; it never raises what a person can put right.

    Attributes:
        people: who is there.
        counter: where their files lie until they are taken.
        export: makes a file of what was learnt, if there is a way.
    """

    people: People
    counter: Counter
    export: Export | None = None

    def teach(self, who: str | None, data: Any) -> Outcome:
        """Change somebody's classes or pictures.

        Args:
            who: they are.
            data: what the browser sent: what is to be done, and what with.
        """
        return self._in_session(who, data, self._change)

    def learn(self, who: str | None) -> Outcome:
        """Learn from somebody's pictures."""

        def learn(session: Session, _: dict[str, Any]) -> Outcome:
            session.learn()
            return Outcome()

        return self._in_session(who, {}, learn)

    def try_out(self, who: str | None, data: Any) -> Outcome:
        """Say what new pictures are.

        Args:
            who: asks.
            data: a drawing or files, as the browser sent them.
        """
        return self._in_session(who, data, self._predict)

    def keep(self, who: str | None, data: Any) -> Outcome:
        """Save or load examples, or hand out the model.

        Args:
            who: asks.
            data: what the browser sent.
        """

        def keep(session: Session, data: dict[str, Any]) -> Outcome:
            match data.get("do"):
                case "save":
                    return self._hand_out(who, self._saved(session))
                case "export":
                    return self._hand_out(who, self._exported(session))
                case "load":
                    return self._load(session, data)
                case _:
                    raise ConfigError(_UNKNOWN)

        return self._in_session(who, data, keep)

    def leave(self, who: str | None) -> None:
        """Somebody has closed the page."""
        self.people.leave(who)
        self.counter.drop(who)
        self.counter.expire()

    def _in_session(
        self, who: str | None, data: Any, act: Callable[[Session, dict[str, Any]], Outcome]
    ) -> Outcome:
        try:
            session = self.people.session(who)
            with session.lock:
                return act(session, data if isinstance(data, dict) else {})
        except AlfaError as error:
            return Outcome(problems=[str(error)])

    def _files(self, data: dict[str, Any], kind: type[T], *, limit: int) -> list[T]:
        """What was uploaded; it is nowhere else from now on."""
        tokens = data.get("files")
        if not isinstance(tokens, list) or not tokens:
            raise DataError("there is no file; choose one.")
        if len(tokens) > limit:
            raise DataError(f"these are {len(tokens)} files; take {limit} at once at most.")
        return [self.counter.take(token, kind) for token in tokens]

    def _change(self, session: Session, data: dict[str, Any]) -> Outcome:
        match data.get("do"):
            case "add":
                session.add_class()
            case "rename":
                session.rename(data.get("class"), data.get("name"))
            case "remove":
                session.remove_class(data.get("class"))
            case "pick":
                session.pick(data.get("class"))
            case "discard":
                session.remove_picture(data.get("picture"))
            case "draw":
                pixels = session.model.drawn(data.get("strokes"))
                session.add_pixels(_target(session, data), pixels)
            case "files":
                return self._add_files(session, data)
            case _:
                raise ConfigError(_UNKNOWN)
        # What was done is there to be seen.
        return Outcome()

    def _add_files(self, session: Session, data: dict[str, Any]) -> Outcome:
        number = _target(session, data)
        files = self._files(data, Seen, limit=MAX_PICTURES)
        added, refused = session.add_files(number, files)
        name = session.class_of(number).name
        told = f"{_pictures(added)} added to “{name}”."
        return Outcome(done=[told] if added else [], problems=refused)

    def _predict(self, session: Session, data: dict[str, Any]) -> Outcome:
        problems: list[str] = []
        pictures: list[tuple[str, np.ndarray]] = []
        if data.get("do") == "draw":
            pictures.append(("", session.model.drawn(data.get("strokes"))))
        else:
            for seen in self._files(data, Seen, limit=MAX_TRIED):
                if seen.pixels is None:
                    problems.append(seen.problem)
                else:
                    pictures.append((seen.name, seen.pixels))
        found = session.predict(pictures) if pictures else []
        return Outcome(problems=problems, predictions=found)

    def _saved(self, session: Session) -> File:
        if not session.num_pictures:
            raise ConfigError("there are no pictures to save yet.")
        return File("examples.zip", packed(session.classes))

    def _load(self, session: Session, data: dict[str, Any]) -> Outcome:
        [file] = self._files(data, File, limit=1)
        session.replace(unpacked(file.content, name=file.name, model=session.model))
        told = f"{len(session.classes)} classes with {_pictures(session.num_pictures)} loaded."
        return Outcome(done=[told])

    def _exported(self, session: Session) -> File:
        if self.export is None:
            raise ConfigError("the model cannot be exported here; `pip install 'alfa[export]'`.")
        if session.learnt is None:
            raise ConfigError("nothing has been learnt yet; press Learn first.")
        return File("model.onnx", self.export(session.learnt, session.learnt_names()))

    def _hand_out(self, who: str | None, file: File) -> Outcome:
        if self.people.known(who) is None:
            # Whoever asked for it has left in the meantime.
            return Outcome()
        token = self.counter.put(file, who=who)
        return Outcome(done=[f"{file.name} is ready."], file=(token, file.name))


def _target(session: Session, data: dict[str, Any]) -> Any:
    """The class that pictures are for: that which was picked when they set out."""
    return data.get("class") or session.picked


def _pictures(number: int) -> str:
    return f"{number} {'picture' if number == 1 else 'pictures'}"
