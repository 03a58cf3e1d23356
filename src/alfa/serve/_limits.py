"""Limits of the server, of a session, and of a request."""

from dataclasses import dataclass

# Characters of a class name, and of a file name.
MAX_NAME, MAX_FILE_NAME = 40, 80
# Points of a drawing: several minutes of pen movement stay below this limit.
MAX_POINTS = 5_000
# The longest side of a thumbnail in pixels.
THUMBNAIL_SIDE = 320


@dataclass(frozen=True)
class Limits:
    """Limits that keep one client from blocking the others or filling the memory.

    Attributes:
        sessions: number of sessions.
        idle_seconds: idle time after which a new session may replace an old one.
        session_seconds: idle time after which a session is deleted.
        session_bytes: memory for the photos of a session.
        total_bytes: memory for the photos of all sessions.
        classes: number of classes of a session.
        photos: number of photos of a session, labeled and unlabeled.
        undo_steps: number of changes that `undo` can revert.
        file_bytes: size of a photo.
        files: number of files in a request.
        request_bytes: size of a request with files.
        zip_bytes: size of a request with saved examples.
        json_bytes: size of any other request.
        receiving_bytes: memory for all requests that are being received or processed.
        uploads: number of concurrent uploads of a session.
        header_seconds: time for the headers of a request.
        silent_seconds: longest pause within a request.
        upload_seconds: time for a whole request.
        side_pixels: longer side of a photo.
    """

    sessions: int = 100
    idle_seconds: float = 30 * 60
    session_seconds: float = 24 * 60 * 60
    session_bytes: int = 512 << 20
    total_bytes: int = 2 << 30
    classes: int = 200
    photos: int = 1000
    undo_steps: int = 50
    file_bytes: int = 20 << 20
    files: int = 50
    request_bytes: int = 64 << 20
    zip_bytes: int = 256 << 20
    json_bytes: int = 1 << 20
    receiving_bytes: int = 512 << 20
    uploads: int = 4
    header_seconds: float = 10
    silent_seconds: float = 10
    upload_seconds: float = 120
    side_pixels: int = 20_000


def megabytes(number: int) -> str:
    """Return a size for an error message."""
    return f"{number >> 20} MB"
