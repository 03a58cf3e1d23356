"""The state of a server: models, sessions, and the two threads that work for all of them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from alfa.errors import DataError
from alfa.estimator import PreparedImages
from alfa.serve._limits import Limits, megabytes
from alfa.serve._model import Model
from alfa.serve._photo import Decoded, Photo, Upload, decode_upload
from alfa.serve._problem import Problem, busy, unknown
from alfa.serve._session import Session

T = TypeVar("T")


@dataclass(frozen=True)
class Refused:
    """A file that cannot be used."""

    name: str
    code: str
    detail: str


class Sessions:
    """The sessions by identifier, least recently used first.

    At capacity, a new session replaces the one that has been idle longest, if that is long enough.
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._sessions: dict[str, tuple[Session, float]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def num_bytes(self) -> int:
        return sum(session.num_bytes for session, _ in self._sessions.values())

    def create(self, model: Model) -> Session:
        """Create a session; raise if there are too many."""
        self._expire(self._limits.session_seconds)
        if len(self) >= self._limits.sessions:
            self._expire(self._limits.idle_seconds, most=1)
        if len(self) >= self._limits.sessions:
            raise busy(f"all {self._limits.sessions} sessions are in use; try again later.")
        session = Session(secrets.token_urlsafe(16), model, self._limits)
        self._sessions[session.id] = session, self._clock()
        return session

    def get(self, session_id: str) -> Session:
        """Return a session, and note its use; raise if it does not exist."""
        self._expire(self._limits.session_seconds)
        if session_id not in self._sessions:
            raise unknown("session", session_id)
        session, _ = self._sessions.pop(session_id)
        self._sessions[session_id] = session, self._clock()
        return session

    def delete(self, session: Session) -> None:
        self._sessions.pop(session.id, None)

    def _expire(self, seconds: float, *, most: int | None = None) -> None:
        """Delete the sessions that were not used for some time, at most a number of them."""
        oldest = self._clock() - seconds
        idle = [own for own, (_, last_used) in self._sessions.items() if last_used < oldest]
        for session_id in idle[:most]:
            del self._sessions[session_id]


class Service:
    """The state of a server.

    One thread decodes files, which bounds the memory for large images. Another one computes:
    embedding, learning, and predictions use all cores, and some kernels are not thread-safe.

    Attributes:
        models: the server's own model first, and then the pretrained ones.
        limits: the limits of requests and sessions.
        sessions: the sessions.
        num_receiving_bytes: the memory of the requests that the server receives or processes.
    """

    def __init__(self, models: Sequence[Model], limits: Limits) -> None:
        self.models, self.limits, self.sessions = models, limits, Sessions(limits)
        self.num_receiving_bytes = 0
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="alfa-decode")
        self._computer = ThreadPoolExecutor(1, thread_name_prefix="alfa-compute")
        self._computer.submit(models[0].load)

    async def compute(self, function: Callable[[], T]) -> T:
        """Run a function while no other computation runs."""
        return await asyncio.get_running_loop().run_in_executor(self._computer, function)

    def close(self) -> None:
        """Stop the threads after their current task."""
        for executor in (self._decoder, self._computer):
            executor.shutdown(wait=False, cancel_futures=True)

    async def load_model(self, name: str | None) -> Model:
        """Return a model by name, or the default; raise if it is unknown or not available."""
        found = [model for model in self.models if name in (None, model.name)]
        if not found:
            names = ", ".join(model.name for model in self.models)
            detail = f"`model` must be one of {names}, got {name!r}."
            raise Problem(422, "unknown-model", detail, field="model")
        if found[0].reason is not None:
            detail = f"{name} is not available; {found[0].reason}."
            raise Problem(409, "model-unavailable", detail, field="model")
        await self.compute(found[0].load)
        return found[0]

    @contextmanager
    def uploading(self, session: Session) -> Iterator[None]:
        """Count an upload of a session; raise if it has too many."""
        if session.uploads >= self.limits.uploads:
            raise busy(f"a session may have at most {self.limits.uploads} concurrent uploads.")
        session.uploads += 1
        try:
            yield
        finally:
            session.uploads -= 1

    async def receive(
        self, session: Session, uploads: Sequence[Upload], *, kind: str = ""
    ) -> tuple[list[Photo], list[Refused]]:
        """Convert files to inputs of the session's model; `kind` starts their identifiers."""
        photos, refused, model = [], [], session.model
        for upload in uploads:
            code = "not-an-image"
            try:
                if upload.is_drawing and model.dark_ink is None:
                    code = "drawing-not-supported"
                elif len(upload.content) > self.limits.file_bytes:
                    code = "too-large"
                    raise DataError(f"is larger than {megabytes(self.limits.file_bytes)}")
                photos.append(await self._prepare(upload, session, model, kind))
            except DataError as error:
                detail = f"“{upload.name}” {str(error).rstrip('.')}."
                refused.append(Refused(upload.name, code, detail))
        return photos, refused

    async def _prepare(self, upload: Upload, session: Session, model: Model, kind: str) -> Photo:
        """Decode a file, and convert it to the input of a model."""

        def decode() -> Decoded:
            return decode_upload(upload, model, side_pixels=self.limits.side_pixels)

        def embed() -> PreparedImages:
            return PreparedImages.of(model.image_format, own.levels[None], cache=session.cache)

        own = await asyncio.get_running_loop().run_in_executor(self._decoder, decode)
        images = await self.compute(embed)
        size = own.width, own.height
        return Photo(session.new_id(kind), upload, *size, own.thumbnail, images, own.note)

    def admit(self, session: Session, photos: Sequence[Photo]) -> tuple[list[Photo], list[Refused]]:
        """Return the photos for which the session and the memory have room, and the others."""
        admitted: list[Photo] = []
        refused: list[Refused] = []
        for photo in photos:
            if len(session.state.photos()) + len(admitted) >= self.limits.photos:
                code = "too-many-photos"
                detail = f"a session has at most {self.limits.photos} photos; delete some"
            elif not self._has_room(session, [*admitted, photo]):
                code = "session-full"
                detail = "there is no memory left for it; delete photos, or upload smaller ones"
            else:
                admitted.append(photo)
                continue
            refused.append(Refused(photo.name, code, f"“{photo.name}” is refused: {detail}."))
        return admitted, refused

    def _has_room(self, session: Session, new: Sequence[Photo]) -> bool:
        """Return whether memory suffices, possibly after forgetting deleted photos."""
        size = sum(photo.num_bytes for photo in new)

        def fits() -> bool:
            is_small = session.num_bytes + size <= self.limits.session_bytes
            return is_small and self.sessions.num_bytes + size <= self.limits.total_bytes

        if not fits():
            session.forget_history()
        return fits()

    async def change_model(self, session: Session, name: str) -> None:
        """Use another model in a session, which embeds all photos again."""
        model = await self.load_model(name)
        async with session.lock:
            photos = session.all_photos()
            if model.dark_ink is None and any(p.upload.is_drawing for p in photos.values()):
                detail = f"{name} takes photos, but the session has drawings; start a new session."
                raise Problem(409, "model-unsuitable", detail, field="model")
            if model is session.model:
                return
            for photo in list(photos.values()):
                new = await self._prepare(photo.upload, session, model, "")
                photos[photo.id] = replace(new, id=photo.id)
            session.use_model(model, photos)
