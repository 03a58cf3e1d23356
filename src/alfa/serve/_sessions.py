"""The sessions of all users."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from alfa.errors import ConfigError
from alfa.serve._limits import IDLE_SECONDS, MAX_SESSIONS
from alfa.serve._session import Session


class Sessions:
    """The session of every browser tab, by its identifier.

    If there are as many as the capacity, a new one replaces one that has been idle for long.
    """

    def __init__(
        self,
        make: Callable[[], Session],
        *,
        capacity: int = MAX_SESSIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._capacity, self._clock = make, capacity, clock
        self._sessions: dict[str, Session] = {}
        self._last_used: dict[str, float] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, session_id: str | None) -> Session:
        """The session of a tab, made if it has none.

        Raises:
            ConfigError: there is no identifier, or there are too many sessions.
        """
        if not session_id:
            raise ConfigError("this page works in a browser only; reload it.")
        with self._lock:
            if session_id not in self._sessions:
                self._make_room()
                self._sessions[session_id] = self._make()
            self._last_used[session_id] = self._clock()
            return self._sessions[session_id]

    def get(self, session_id: str | None) -> Session | None:
        """The session of a tab; None if it has none, or was closed."""
        with self._lock:
            return self._sessions.get(session_id or "")

    def close(self, session_id: str | None) -> None:
        with self._lock:
            self._sessions.pop(session_id or "", None)
            self._last_used.pop(session_id or "", None)

    def _make_room(self) -> None:
        if len(self._sessions) < self._capacity:
            return
        idlest = min(self._last_used, key=self._last_used.__getitem__)
        if self._clock() - self._last_used[idlest] < IDLE_SECONDS:
            raise ConfigError(
                f"{self._capacity} people are using this page, which is as many as it serves at "
                "once; try again later."
            )
        del self._sessions[idlest], self._last_used[idlest]
