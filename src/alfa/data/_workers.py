"""Many images decoded at once, in threads or in processes."""

from __future__ import annotations

import contextlib
import itertools
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

from alfa._runtime import leave_with_parent
from alfa.data._decode import decode
from alfa.data.sources import Item
from alfa.errors import DataError

# Images that a worker decodes at once: enough to make the transfer cheap.
AT_ONCE = 32
# For small images Python takes longer than the decoder, and only one thread can run Python.
# Processes are faster, but take seconds to start: they are used from this many image files on.
PROCESSES_FROM = 32_768


@dataclass(frozen=True)
class Decoded:
    """The pixels of usable images, and notes on images by their number."""

    pixels: np.ndarray
    left_out: list[tuple[int, str]]
    changed: list[tuple[int, str]]


_Work = Callable[[Sequence[Item]], Decoded]
_Chunks = Iterable[Sequence[Item]]


def decode_all(items: Sequence[Item], *, size: int, num_channels: int) -> Decoded:
    """Decode images to squares of a side; an image that cannot be used is left out."""
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
    """Decode images in parallel; chunks come in order, and few are in memory.

    Args:
        chunks: images that a worker decodes at once.
        size: the side of the results.
        num_channels: 3, or 1 for grey.
        workers: threads or processes.
        total: the number of images, roughly.
    """
    work = partial(decode_all, size=size, num_channels=num_channels)
    chunks = iter(chunks)
    first = next(chunks, None)
    if first is None:
        return
    chunks = itertools.chain([first], chunks)
    in_processes = workers > 1 and total >= PROCESSES_FROM and _can_travel(first)
    yield from (_in_processes if in_processes else _in_threads)(work, chunks, workers)


def _can_travel(items: Sequence[Item]) -> bool:
    """Whether images are files that another process can read, and not pixels in memory."""
    try:
        pickle.dumps(items)
    # A callable that cannot be pickled may raise anything.
    except Exception:
        return False
    try:
        return isinstance(_read(items[0]), bytes)
    except DataError:
        # A file that cannot be read is a file all the same.
        return True


def _in_threads(work: _Work, chunks: _Chunks, workers: int) -> Generator[Decoded, None, None]:
    # Filters of warnings belong to the whole process, so they are set around all threads.
    with suppress_pillow_warnings(), ThreadPoolExecutor(workers) as pool:
        yield from _in_order(pool, work, chunks, workers)


def _in_processes(work: _Work, chunks: _Chunks, workers: int) -> Generator[Decoded, None, None]:
    # Unlike the standard library's processes, loky's do not run the user's script again.
    from loky import BrokenProcessPool, ProcessPoolExecutor

    # By default, they would outlive a killed parent by a minute.
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
        # loky warns about the processes that it kills.
        with warnings.catch_warnings(action="ignore"):
            pool.shutdown(kill_workers=True)
        raise


def _in_order(
    pool: Executor, work: _Work, chunks: _Chunks, workers: int
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


def _quietly(work: _Work, items: Sequence[Item]) -> Decoded:
    with suppress_pillow_warnings():
        return work(items)


def _read(item: Item) -> bytes | np.ndarray:
    try:
        return item.read()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})") from None
    except (KeyError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"cannot be read ({error})") from None


@contextlib.contextmanager
def suppress_pillow_warnings() -> Iterator[None]:
    """Ignore Pillow's warnings about files, except image bombs, which are errors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield
