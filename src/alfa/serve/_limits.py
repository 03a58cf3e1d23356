"""Limits of the server, of a session, and of a request."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits that keep one client from blocking the others or filling the memory."""

    # Sessions, and their photos.
    sessions: int = 100
    idle_seconds: float = 1_800  # after which a new session may replace an old one
    session_seconds: float = 86_400  # idle time after which a session is deleted
    session_bytes: int = 512 << 20
    total_bytes: int = 2 << 30  # of all sessions
    classes: int = 200
    photos: int = 1_000  # labeled and unlabeled
    name_length: int = 40  # characters of a class name
    undo_steps: int = 50
    # Requests.
    files: int = 50
    file_bytes: int = 20 << 20
    request_bytes: int = 64 << 20  # with files
    zip_bytes: int = 256 << 20  # with saved examples
    json_bytes: int = 1 << 20  # without files
    receiving_bytes: int = 512 << 20  # of all requests that the server is receiving or processing
    uploads: int = 4  # concurrent ones of a session
    header_seconds: float = 10
    silent_seconds: float = 10  # pause within a request
    upload_seconds: float = 120
    side_pixels: int = 20_000


def megabytes(number: int) -> str:
    """Return a size for an error message."""
    return f"{number >> 20} MB"
