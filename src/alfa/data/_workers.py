"""Decode many images in parallel, in threads or processes."""

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
from dataclasses import dataclass
from functools import partial

import numpy as np
from PIL import Image

from alfa._runtime import leave_with_parent
from alfa.data._decode import Crop, decode
from alfa.data.sources import Item
from alfa.errors import DataError

# Images per chunk: enough to make the transfer between processes cheap.
AT_ONCE = 32
# For small images, Python code takes longer than the decoder, and only one thread at a time can run
# it. Processes are faster but take seconds to start, so they need at least this many images.
PROCESSES_FROM = 32_768


@dataclass(frozen=True)
class Decoded:
    """The pixels of usable images, and notes on images by number."""

    pixels: np.ndarray
    left_out: list[tuple[int, str]]
    changed: list[tuple[int, str]]


_Work = Callable[[Sequence[Item]], Decoded]
_Chunks = Iterable[Sequence[Item]]


def decode_all(
    items: Sequence[Item], *, size: int, num_channels: int, crop: Crop | None = None
) -> Decoded:
    """Decode images to squares of side `size`, and skip images that cannot be used."""
    pixels = np.empty((len(items), num_channels, size, size), np.uint8)
    left_out, changed = [], []
    good = 0
    for number, item in enumerate(items):
        try:
            content = _read(item)
            pixels[good], changes = decode(content, size=size, num_channels=num_channels, crop=crop)
        except DataError as error:
            left_out.append((number, str(error)))
            continue
        good += 1
        if changes:
            changed.append((number, ", ".join(changes)))
    return Decoded(pixels[:good], left_out, changed)


def decode_chunks(
    chunks: _Chunks,
    *,
    size: int,
    num_channels: int,
    workers: int,
    total: int,
    crop: Crop | None = None,
) -> Generator[Decoded, None, None]:
    """Decode about `total` images in parallel; chunks are in order, and few of them in memory."""
    work = partial(decode_all, size=size, num_channels=num_channels, crop=crop)
    chunks = iter(chunks)
    first = next(chunks, None)
    if first is None:
        return
    in_processes = workers > 1 and total >= PROCESSES_FROM and _is_transferable(first)
    decode_in = _in_processes if in_processes else _in_threads
    yield from decode_in(work, itertools.chain([first], chunks), workers)


def _is_transferable(items: Sequence[Item]) -> bool:
    """Return True if the items are files that another process can read, and not arrays."""
    try:
        pickle.dumps(items)
        return isinstance(_read(items[0]), bytes)
    except DataError:
        # Only a file can be unreadable.
        return True
    except Exception:
        # Pickling a callable may raise anything.
        return False


def _in_threads(work: _Work, chunks: _Chunks, workers: int) -> Generator[Decoded, None, None]:
    # Warning filters apply to the whole process, so they are set once around all threads.
    with suppress_pillow_warnings(), ThreadPoolExecutor(workers) as pool:
        yield from _in_order(pool, work, chunks, workers)


def _in_processes(work: _Work, chunks: _Chunks, workers: int) -> Generator[Decoded, None, None]:
    # Unlike multiprocessing, loky does not run the user's script again.
    from loky import BrokenProcessPool, ProcessPoolExecutor

    # Without `leave_with_parent`, the workers would outlive a killed parent by a minute.
    pool = ProcessPoolExecutor(
        workers, timeout=60, initializer=leave_with_parent, initargs=(os.getpid(),)
    )
    try:
        yield from _in_order(pool, partial(_without_warnings, work), chunks, workers)
        pool.shutdown()
    except BrokenProcessPool as error:
        reason = str(error).split("\n")[0].split(". ")[0]
        raise DataError(
            f"a decoding process ended unexpectedly ({reason}); run the command again, with "
            "--workers 1 if the error persists."
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


def _without_warnings(work: _Work, items: Sequence[Item]) -> Decoded:
    with suppress_pillow_warnings():
        return work(items)


def _read(item: Item) -> bytes | np.ndarray:
    try:
        return item.read()
    except (OSError, KeyError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"cannot be read ({getattr(error, 'strerror', None) or error})") from None


@contextlib.contextmanager
def suppress_pillow_warnings() -> Iterator[None]:
    """Ignore Pillow's warnings about files, but raise its warnings about image bombs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield
