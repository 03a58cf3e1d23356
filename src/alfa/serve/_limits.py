"""The limits of one user and of the server, and the route of its files."""

from __future__ import annotations

FILES = "/alfa/files"

MIN_CLASSES, MAX_CLASSES = 2, 20
MAX_PER_CLASS, MAX_IMAGES = 50, 200
# Images that are classified at once.
MAX_TRIED = 12

# Bytes of one image, of a saved set of examples, and of that set unpacked.
MAX_FILE, MAX_ZIP, MAX_UNPACKED = 10 << 20, 20 << 20, 64 << 20
# Characters of a class name, and of a file name in a message.
MAX_NAME, MAX_FILE_NAME = 40, 60
# Points of a drawing; a pen that moves for minutes leaves fewer.
MAX_POINTS = 5_000

# Sessions at once, and the seconds after which an idle one makes room for another.
MAX_SESSIONS, IDLE_SECONDS = 100, 30 * 60
# Transfers: bytes in total, and seconds until they expire, enough to read the photos of a large
# drop while others do the same.
MAX_TRANSFER_BYTES, MAX_TRANSFER_SECONDS = 256 << 20, 600
# Uploads that are received at once, and the seconds for one.
MAX_RECEIVING, MAX_UPLOAD_SECONDS = 8, 120
# Bytes of any other request.
MAX_REQUEST = 1 << 20


def megabytes(number: int) -> str:
    return f"{number >> 20} MB"
