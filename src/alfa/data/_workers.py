"""Many images decoded at once, in threads or in processes."""

from __future__ import annotations

import contextlib
import os
import pickle
import warnings
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from PIL import Image

from alfa.data._decode import decode
from alfa.data.sources._base import Item
from alfa.errors import DataError
from alfa.parent import leave_with_parent

# Images that a worker decodes in one go: enough that handing them over costs nothing.
AT_ONCE = 32
# Around a small image Python has more to do than the decoder, and threads do that in turns.
# Processes do not, but take seconds to start: they serve from this many image files on.
PROCESSES_FROM = 32_768


@dataclass(frozen=True)
class Decoded:
    """What became of some images: the pixels of the good ones, and notes on others by number."""

    pixels: np.ndarray
    left_out: list[tuple[int, str]]
    changed: list[tuple[int, str]]


def decode_all(items: Sequence[Item], *, size: int, num_channels: int) -> Decoded:
    """Decode images; one that cannot be used is noted.

    Args:
        items: the images.
        size: the side that is wanted.
        num_channels: 3, or 1 for grey.
    """
    pixels = np.empty((len(items), num_channels, size, size), np.uint8)
    result = Decoded(pixels, [], [])
    good = 0
    for number, item in enumerate(items):
        try:
            pixels[good], changes = decode(_read(item), size=size, num_channels=num_channels)
        except DataError as error:
            result.left_out.append((number, str(error)))
            continue
        good += 1
        if changes:
            result.changed.append((number, ", ".join(changes)))
    return replace(result, pixels=pixels[:good])


def decode_chunks(
    chunks: Iterable[Sequence[Item]], *, size: int, num_channels: int, workers: int, total: int
) -> Generator[Decoded, None, None]:
    """Decode images side by side; every chunk comes in its order, and few are in memory.

    Args:
        chunks: images that a worker takes in one go.
        size: the side that is wanted.
        num_channels: 3, or 1 for grey.
        workers: how many work side by side.
        total: how many images there are, roughly.
    """
    work = partial(decode_all, size=size, num_channels=num_channels)
    chunks = iter(chunks)
    first = next(chunks, None)
    if first is None:
        return
    chunks = _with_first(first, chunks)
    if workers > 1 and total >= PROCESSES_FROM and _can_travel(first):
        yield from _in_processes(work, chunks, workers)
    else:
        yield from _in_threads(work, chunks, workers)


def _with_first(first: Sequence[Item], rest: Iterator[Sequence[Item]]) -> Iterator[Sequence[Item]]:
    yield first
    yield from rest


def _can_travel(items: Sequence[Item]) -> bool:
    """Whether images are files that another process can read; pixels are at hand already."""
    try:
        pickle.dumps(items)
    # What a callable that cannot be pickled raises is anything.
    except Exception:
        return False
    try:
        return isinstance(_read(items[0]), bytes)
    except DataError:
        # A file that cannot be read is a file all the same.
        return True


def _in_threads(
    work: Callable[[Sequence[Item]], Decoded], chunks: Iterable[Sequence[Item]], workers: int
) -> Generator[Decoded, None, None]:
    with quiet_pillow(), ThreadPoolExecutor(workers) as pool:
        yield from _in_order(pool, work, chunks, workers)


def _in_processes(
    work: Callable[[Sequence[Item]], Decoded], chunks: Iterable[Sequence[Item]], workers: int
) -> Generator[Decoded, None, None]:
    # Unlike the standard library's processes, loky's do not run the user's script once more.
    from loky import BrokenProcessPool, ProcessPoolExecutor

    # Left to themselves, they would outlive this process by a minute if it was killed.
    pool = ProcessPoolExecutor(
        workers, timeout=60, initializer=leave_with_parent, initargs=(os.getpid(),)
    )
    try:
        yield from _in_order(pool, partial(_quietly, work), chunks, workers)
        pool.shutdown()
    except BrokenProcessPool as error:
        reason = str(error).split("\n")[0].split(". ")[0]
        raise DataError(
            f"a process that decodes images has ended ({reason}); run it again, and with "
            "--workers 1 if it happens once more."
        ) from None
    except BaseException:
        # How loky kills them, and what it has to say about that, is of no interest.
        with warnings.catch_warnings(action="ignore"):
            pool.shutdown(kill_workers=True)
        raise


def _in_order(
    pool: Executor,
    work: Callable[[Sequence[Item]], Decoded],
    chunks: Iterable[Sequence[Item]],
    workers: int,
) -> Generator[Decoded, None, None]:
    waiting: deque[Future[Decoded]] = deque()
    try:
        for chunk in chunks:
            waiting.append(pool.submit(work, chunk))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _quietly(work: Callable[[Sequence[Item]], Decoded], items: Sequence[Item]) -> Decoded:
    with quiet_pillow():
        return work(items)


def _read(item: Item) -> bytes | np.ndarray:
    """The content of an item; that it cannot be read is a problem of this item alone."""
    try:
        return item.read()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})") from None
    except (KeyError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"cannot be read ({error})") from None


@contextlib.contextmanager
def quiet_pillow() -> Iterator[None]:
    """Pillow's remarks on files go nowhere; what matters of them is an error.

    Once around all threads, because the filters of warnings belong to the whole process.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield
