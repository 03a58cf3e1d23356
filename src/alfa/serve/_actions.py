"""What somebody does on the page, and what they are told of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alfa.errors import AlfaError, ConfigError, DataError
from alfa.serve._examples import packed, unpacked
from alfa.serve._export import Export
from alfa.serve._limits import MAX_PICTURES, MAX_TRIED
from alfa.serve._people import Counter, People
from alfa.serve._session import Prediction, Session

_UNKNOWN = "the page does not know what to do; reload it."


@dataclass(frozen=True)
class Outcome:
    """What came of an action.

    Attributes:
        done: sentences about what was done.
        problems: sentences about what was not.
        predictions: what the model says of pictures that were tried.
        file: of a file that is ready, what it is asked for by, and its name.
    """

    done: Sequence[str] = ()
    problems: Sequence[str] = ()
    predictions: Sequence[Prediction] = ()
    file: tuple[str, str] | None = None


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
        known = {"save": self._save, "load": self._load, "export": self._export}

        def keep(session: Session, data: dict[str, Any]) -> Outcome:
            act = known.get(str(data.get("do")))
            if act is None:
                raise ConfigError(_UNKNOWN)
            return act(session, data)

        return self._in_session(who, data, keep)

    def leave(self, who: str | None) -> None:
        """Somebody has closed the page."""
        self.people.leave(who)
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

    def _files(self, data: dict[str, Any], limit: int) -> list[tuple[str, bytes]]:
        """What was uploaded; it is nowhere else from now on."""
        tokens = data.get("files")
        if not isinstance(tokens, list) or not tokens:
            raise DataError("there is no file; choose one.")
        parcels = [self.counter.take(token) for token in tokens]
        if len(parcels) > limit:
            raise DataError(f"these are {len(parcels)} files; take {limit} at once at most.")
        return [(parcel.name, parcel.content) for parcel in parcels]

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
        added, refused = session.add_files(number, self._files(data, MAX_PICTURES))
        name = session.class_of(number).name
        told = f"{_pictures(added)} added to “{name}”."
        return Outcome(done=[told] if added else [], problems=refused)

    def _predict(self, session: Session, data: dict[str, Any]) -> Outcome:
        problems: list[str] = []
        pictures: list[tuple[str, np.ndarray]] = []
        if data.get("do") == "draw":
            pictures.append(("", session.model.drawn(data.get("strokes"))))
        else:
            for name, content in self._files(data, MAX_TRIED):
                try:
                    pictures.append((name, session.model.read(content)))
                except DataError as error:
                    problems.append(f"“{name}” {error}.")
        found = session.predict(pictures) if pictures else []
        return Outcome(problems=problems, predictions=found)

    def _save(self, session: Session, _: dict[str, Any]) -> Outcome:
        if not session.num_pictures:
            raise ConfigError("there are no pictures to save yet.")
        return self._hand_out("examples.zip", packed(session.classes))

    def _load(self, session: Session, data: dict[str, Any]) -> Outcome:
        [(name, content)] = self._files(data, 1)
        session.replace(unpacked(content, name=name, model=session.model))
        told = f"{len(session.classes)} classes with {_pictures(session.num_pictures)} loaded."
        return Outcome(done=[told])

    def _export(self, session: Session, _: dict[str, Any]) -> Outcome:
        if self.export is None:
            raise ConfigError("the model cannot be exported here; `pip install 'alfa[export]'`.")
        if session.learnt is None:
            raise ConfigError("nothing has been learnt yet; press Learn first.")
        return self._hand_out("model.onnx", self.export(session.learnt, session.learnt_names()))

    def _hand_out(self, name: str, content: bytes) -> Outcome:
        return Outcome(done=[f"{name} is ready."], file=(self.counter.put(name, content), name))


def _target(session: Session, data: dict[str, Any]) -> Any:
    """The class that pictures are for: that which was picked when they set out."""
    return data.get("class") or session.picked


def _pictures(number: int) -> str:
    return f"{number} {'picture' if number == 1 else 'pictures'}"
