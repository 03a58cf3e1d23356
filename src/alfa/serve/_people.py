"""Who is on the page, and what is on its way between them and it."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from alfa.errors import ConfigError
from alfa.serve._limits import IDLE_SECONDS, MAX_PEOPLE, MAX_SECONDS, MAX_UNDER_WAY
from alfa.serve._model import Seen
from alfa.serve._session import Session

T = TypeVar("T", "File", Seen)

# Bytes that anything on its way takes, however small it is.
_LEAST = 1 << 10


class People:
    """The sessions of everybody who has the page open; each belongs to one browser tab.

    Args:
        make: makes a session for somebody new.
        capacity: how many there can be at once.
        clock: the time in seconds.
    """

    def __init__(
        self,
        make: Callable[[], Session],
        *,
        capacity: int = MAX_PEOPLE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._capacity, self._clock = make, capacity, clock
        self._sessions: dict[str, Session] = {}
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def session(self, who: str | None) -> Session:
        """Somebody's session; a new one if they have none.

        Raises:
            ConfigError: nobody says who they are, or too many are there.
        """
        if not who:
            raise ConfigError("this page works in a browser only; reload it.")
        with self._lock:
            if who not in self._sessions:
                self._make_room()
                self._sessions[who] = self._make()
            self._seen[who] = self._clock()
            return self._sessions[who]

    def known(self, who: str | None) -> Session | None:
        """Somebody's session; None if they have none, or have left."""
        with self._lock:
            return self._sessions.get(who or "")

    def leave(self, who: str | None) -> None:
        """Drop everything of somebody who has closed the page."""
        with self._lock:
            self._sessions.pop(who or "", None)
            self._seen.pop(who or "", None)

    def _make_room(self) -> None:
        if len(self._sessions) < self._capacity:
            return
        idlest = min(self._seen, key=self._seen.__getitem__)
        if self._clock() - self._seen[idlest] < IDLE_SECONDS:
            raise ConfigError(
                f"{self._capacity} people are using this page, which is as many as it serves at "
                "once; try again later."
            )
        del self._sessions[idlest], self._seen[idlest]


@dataclass(frozen=True)
class File:
    """A file as it is.

    Attributes:
        name: what it is called.
        content: its bytes.
    """

    name: str
    content: bytes


@dataclass(frozen=True)
class _Parcel:
    """Something on its way: what, whose, and when it was put down."""

    content: File | Seen
    who: str | None
    time: float

    @property
    def num_bytes(self) -> int:
        if isinstance(self.content, File):
            return _LEAST + len(self.content.content)
        pixels = self.content.pixels
        return _LEAST + (0 if pixels is None else pixels.nbytes)


class Counter:
    """Files and pictures on their way between browsers and the page, in memory; each is taken once.

    Args:
        max_bytes: how much there can be at once.
        clock: the time in seconds.
    """

    def __init__(
        self, *, max_bytes: int = MAX_UNDER_WAY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_bytes, self._clock = max_bytes, clock
        self._parcels: dict[str, _Parcel] = {}
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._parcels)

    def put(self, content: File | Seen, *, who: str | None = None) -> str:
        """Put something down.

        Args:
            content: a file, or a picture as the model sees it.
            who: it belongs to.

        Returns:
            What it is asked for by, which nobody can guess.

        Raises:
            ConfigError: too much is on its way already.
        """
        self.expire()
        new = _Parcel(content, who, self._clock())
        with self._lock:
            held = sum(parcel.num_bytes for parcel in self._parcels.values())
            if held + new.num_bytes > self._max_bytes:
                raise ConfigError(
                    "too many files are on their way at once; try again in some minutes."
                )
            token = secrets.token_urlsafe(16)
            self._parcels[token] = new
        self._expire_later()
        return token

    def expire(self) -> None:
        """Drop what nobody has taken for long."""
        oldest = self._clock() - MAX_SECONDS
        self._keep(lambda parcel: parcel.time >= oldest)

    def _expire_later(self) -> None:
        """Drop what is given up, also where nobody does anything any more."""
        with self._lock:
            if self._timer is not None or not self._parcels:
                return
            oldest = min(parcel.time for parcel in self._parcels.values())
            # A moment more, as what is just as old is kept.
            delay = max(0.0, oldest + MAX_SECONDS - self._clock()) + 0.1
            self._timer = threading.Timer(delay, self._tidy)
            self._timer.daemon = True
            self._timer.start()

    def _tidy(self) -> None:
        with self._lock:
            self._timer = None
        self.expire()
        self._expire_later()

    def drop(self, who: str | None) -> None:
        """Drop everything of somebody who has closed the page."""
        self._keep(lambda parcel: not who or parcel.who != who)

    def take(self, token: object, kind: type[T]) -> T:
        """Take something away.

        Args:
            token: what it is asked for by.
            kind: of what it must be.

        Raises:
            ConfigError: it is not there, or of another kind.
        """
        self.expire()
        with self._lock:
            parcel = self._parcels.pop(token, None) if isinstance(token, str) else None
        if parcel is None or not isinstance(parcel.content, kind):
            raise ConfigError("this file is not there any more; choose it again.")
        return parcel.content

    def _keep(self, wanted: Callable[[_Parcel], bool]) -> None:
        with self._lock:
            self._parcels = {
                token: parcel for token, parcel in self._parcels.items() if wanted(parcel)
            }
