"""Limits of a session and of the server, and the path of the file routes."""

FILES = "/alfa/files"

MIN_CLASSES, MAX_CLASSES = 2, 20
MAX_PER_CLASS, MAX_IMAGES = 50, 200
# Images to classify in one request.
MAX_TRIED = 12

# Bytes of an image file, of a zip of examples, and of the unpacked zip.
MAX_FILE, MAX_ZIP, MAX_UNPACKED = 10 << 20, 20 << 20, 64 << 20
# Characters of a class name, and of a file name in a message.
MAX_NAME, MAX_FILE_NAME = 40, 60
# Points of a drawing: several minutes of pen movement stay below this limit.
MAX_POINTS = 5_000

# Concurrent sessions, and the idle seconds after which a new session may replace an old one.
MAX_SESSIONS, IDLE_SECONDS = 100, 30 * 60
# Bytes of all transfers, and the seconds until a transfer expires. The browser uploads all photos
# of a large drop before it uses the first one.
MAX_TRANSFER_BYTES, MAX_TRANSFER_SECONDS = 256 << 20, 600
# Concurrent uploads, and the seconds allowed for each.
MAX_RECEIVING, MAX_UPLOAD_SECONDS = 8, 120
# Bytes of any other request.
MAX_REQUEST = 1 << 20


def megabytes(number: int) -> str:
    return f"{number >> 20} MB"
