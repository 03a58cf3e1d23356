"""The state of a server: models, sessions, and the two threads that work for all of them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from alfa.backbones import EmbeddingCache
from alfa.errors import DataError
from alfa.serve._limits import Limits, megabytes
from alfa.serve._model import Models, ServedModel
from alfa.serve._photo import Decoded, Photo, Upload, decode_upload
from alfa.serve._problem import Problem, busy, unknown
from alfa.serve._session import Prepared, Session
from alfa.serve._views import RefusedView

T = TypeVar("T")


@dataclass(frozen=True)
class Received:
    """The usable photos of a request as inputs of a model, and the refused files."""

    model: ServedModel
    photos: list[tuple[Photo, Prepared]]
    refused: list[RefusedView]


class Sessions:
    """The sessions by identifier, least recently used first.

    At capacity, a new session replaces the one that has been idle longest, if that is long enough.
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._sessions: dict[str, tuple[Session, float]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return (session for session, _ in self._sessions.values())

    def create(self, model: ServedModel) -> Session:
        """Create a session; raise if there are too many."""
        self.expire()
        if len(self._sessions) >= self._limits.sessions:
            oldest, (_, last_used) = next(iter(self._sessions.items()))
            if self._clock() - last_used < self._limits.idle_seconds:
                raise busy(f"all {self._limits.sessions} sessions are in use; try again later.")
            del self._sessions[oldest]
        session = Session(secrets.token_urlsafe(16), model, self._limits)
        self._sessions[session.id] = session, self._clock()
        return session

    def get(self, session_id: str) -> Session:
        """Return a session, and note its use; raise if it does not exist."""
        self.expire()
        session, _ = self._sessions.pop(session_id, (None, 0.0))
        if session is None:
            raise unknown("session", session_id)
        self._sessions[session_id] = session, self._clock()
        return session

    def delete(self, session_id: str) -> None:
        self.get(session_id)
        del self._sessions[session_id]

    def expire(self) -> None:
        """Delete the sessions that were not used for a long time."""
        oldest = self._clock() - self._limits.session_seconds
        for session_id, (_, last_used) in list(self._sessions.items()):
            if last_used >= oldest:
                break
            del self._sessions[session_id]


@dataclass(eq=False)
class Service:
    """The state of a server.

    One thread decodes files, which bounds the memory for large images. Another one computes:
    embedding, learning, and predictions use all cores, and some kernels are not thread-safe.
    """

    models: Models
    limits: Limits
    sessions: Sessions
    num_receiving_bytes: int = 0
    _decoder: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="alfa-decode")
    )
    _computer: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="alfa-compute")
    )

    @classmethod
    def create(cls, run: Path | str | None, limits: Limits) -> Service:
        """Validate the run, and load it in the background."""
        service = cls(Models(run), limits, Sessions(limits))
        service._computer.submit(lambda: service.models.load(service.models.default).warm_up())
        return service

    async def compute(self, function: Callable[[], T]) -> T:
        """Run a function while no other computation runs."""
        return await asyncio.get_running_loop().run_in_executor(self._computer, function)

    async def decode(self, upload: Upload, model: ServedModel) -> Decoded:
        """Decode a file while no other file is decoded."""
        side = self.limits.side_pixels
        return await asyncio.get_running_loop().run_in_executor(
            self._decoder, lambda: decode_upload(upload, model, side_pixels=side)
        )

    def close(self) -> None:
        """Stop the threads after their current task."""
        for executor in (self._decoder, self._computer):
            executor.shutdown(wait=False, cancel_futures=True)

    async def load_model(self, name: str) -> ServedModel:
        """Return a model; raise if it is unknown or not available."""
        info = self.models.infos.get(name)
        if info is None:
            names = ", ".join(self.models.infos)
            detail = f"`model` must be one of {names}, got {name!r}."
            raise Problem(422, "unknown-model", detail, field="model")
        if info.reason is not None:
            detail = f"{name} is not available: {info.reason}"
            raise Problem(409, "model-unavailable", detail, field="model")
        return await self.compute(lambda: self.models.load(name))

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

    async def receive(self, session: Session, uploads: Sequence[Upload]) -> Received:
        """Decode files and convert them to inputs of the session's model."""
        model, cache = session.model, session.cache
        found, refused = [], []
        for upload in uploads:
            try:
                if len(upload.content) > self.limits.file_bytes:
                    detail = f"is larger than {megabytes(self.limits.file_bytes)}; resize it"
                    raise RefusedError("too-large", detail)
                found.append(await self._prepare(upload, model, cache))
            except (RefusedError, DataError) as error:
                code = error.code if isinstance(error, RefusedError) else "not-an-image"
                if upload.is_drawing and model.dark_ink is None:
                    code = "drawing-not-supported"
                detail = f"“{upload.name}” {str(error).rstrip('.')}."
                refused.append(RefusedView(name=upload.name, code=code, detail=detail))
        return Received(model, found, refused)

    async def _prepare(
        self, upload: Upload, model: ServedModel, cache: EmbeddingCache
    ) -> tuple[Photo, Prepared]:
        decoded = await self.decode(upload, model)
        images = await self.compute(lambda: model.prepare(decoded.levels, cache))
        return decoded.photo, Prepared(images, decoded.note)

    def admit(self, session: Session, received: Received, *, labeled: bool) -> list[Photo]:
        """Give photos identifiers, as far as the session and the memory have room for them."""
        admitted: list[Photo] = []
        num_photos = session.num_photos
        for photo, prepared in received.photos:
            if num_photos >= self.limits.photos:
                code = "too-many-photos"
                detail = f"a session has at most {self.limits.photos} photos; delete some"
            elif not self._has_room(session, photo, admitted):
                code = "session-full"
                detail = "there is no memory left for it; delete photos, or upload smaller ones"
            else:
                admitted.append(session.new_photo(photo, prepared, labeled=labeled))
                num_photos += 1
                continue
            detail = f"“{photo.name}” is refused: {detail}."
            received.refused.append(RefusedView(name=photo.name, code=code, detail=detail))
        return admitted

    def _has_room(self, session: Session, photo: Photo, admitted: Sequence[Photo]) -> bool:
        """Return whether memory suffices for a photo, possibly after forgetting deleted ones."""

        def fits() -> bool:
            new = sum(each.num_bytes for each in (photo, *admitted))
            total = sum(each.num_bytes for each in self.sessions)
            is_small = session.num_bytes + new <= self.limits.session_bytes
            return is_small and total + new <= self.limits.total_bytes

        if not fits() and session.undo_label is not None:
            session.forget_history()
        return fits()

    async def change_model(self, session: Session, name: str) -> None:
        """Use another model in a session: embed all photos again, and forget the classifier."""
        model = await self.load_model(name)
        async with session.lock:
            if model is session.model:
                return
            kept = session.all_photos()
            if model.dark_ink is None and any(photo.upload.is_drawing for photo in kept):
                detail = f"{name} takes photos, but the session has drawings; start a new session."
                raise Problem(409, "model-unsuitable", detail, field="model")
            cache = session.new_cache()
            prepared = {
                photo.id: (await self._prepare(photo.upload, model, cache))[1] for photo in kept
            }
            session.use_model(model, prepared, cache)


class RefusedError(Exception):
    """A file that cannot be used for another reason than its content."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
