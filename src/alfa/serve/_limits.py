"""How much one person may hand to the page; the page states what matters to them."""

from __future__ import annotations

MIN_CLASSES, MAX_CLASSES = 2, 20
MAX_PER_CLASS, MAX_PICTURES = 50, 200
# Tried at once: each has its row of probabilities.
MAX_TRIED = 12

# Bytes of one picture, of a saved set of examples, and of that set unpacked.
MAX_FILE, MAX_ZIP, MAX_UNPACKED = 10 << 20, 20 << 20, 64 << 20
# Characters of a class's name and, to be able to name a file in a sentence, of a file's.
MAX_NAME, MAX_FILE_NAME = 40, 60

# A pen that is moved for minutes leaves fewer points.
MAX_POINTS = 5_000

# People at once; whoever has not been seen for so many seconds makes room for others.
MAX_PEOPLE, IDLE_SECONDS = 100, 30 * 60
# What is on its way from or to a browser: bytes in all, and seconds until it is given up, in which
# every photo of a large drop can be read, also while others are at it.
MAX_UNDER_WAY, MAX_SECONDS = 256 << 20, 600
# Files that are received at once, each of which lies in memory as it is, and seconds for one.
MAX_RECEIVED, MAX_SENDING = 8, 120
# Bytes of any other request.
MAX_REQUEST = 1 << 20


def megabytes(number: int) -> str:
    """A limit as the page states it."""
    return f"{number >> 20} MB"
