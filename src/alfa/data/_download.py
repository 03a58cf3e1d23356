"""Downloads that resume after a lost connection, which `pooch.retrieve` does not do."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import pooch

from alfa._io import locked
from alfa.data.sources import SOURCES, RemoteFile
from alfa.errors import DataError

# Seconds to wait before each new attempt; the count restarts when bytes arrive.
_WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
_TIMEOUT = 30.0
_BLOCK = 1 << 16

OnProgress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes that are there, and how many there will be, if known."""


def download(
    dataset: str, folder: Path, *, on_progress: OnProgress = lambda name, done, total: None
) -> list[Path]:
    """Download the files of a dataset.

    Args:
        dataset: its name.
        folder: for the files.
        on_progress: is called with the progress.

    Returns:
        The files.

    Raises:
        DataError: it cannot be downloaded, or not now; says what to do.
    """
    source = SOURCES.get(dataset)
    manual = source.manual_download
    if manual is not None:
        raise DataError(
            f"{dataset} must be fetched by hand: {manual.reason}. Fetch {manual.files} from "
            f"{manual.page}, {manual.steps}put it into {folder}, and run `alfa data prepare "
            f"{dataset}`."
        )
    if not source.downloads:
        known = ", ".join(name for name in SOURCES if SOURCES.get(name).downloads)
        raise DataError(
            f"there is nothing to download for {dataset}; what can be downloaded is {known}."
        )
    return [fetch(file, folder, on_progress=on_progress) for file in source.downloads]


def fetch(
    file: RemoteFile,
    folder: Path,
    *,
    on_progress: OnProgress = lambda name, done, total: None,
    waits: Sequence[float] = _WAITS,
) -> Path:
    """Download one file, or the rest of it, and compare its checksum.

    Args:
        file: the file.
        folder: for the file; its name ends in ``.part`` until it is complete.
        on_progress: is called with the progress.
        waits: seconds before each new attempt after one without any new bytes.

    Raises:
        DataError: it cannot be downloaded, or has another checksum.
    """
    target = folder / file.name
    part = folder / f"{file.name}.part"
    try:
        if target.exists():
            _check(target, file, advice="move it away, and run this again")
            on_progress(file.name, target.stat().st_size, target.stat().st_size)
            return target
        folder.mkdir(parents=True, exist_ok=True)
        busy = DataError(f"another process is downloading {file.name}; wait for it.")
        with locked(folder / f".{part.name}.lock", busy=busy):
            if target.exists():
                # Another process has just finished.
                return fetch(file, folder, on_progress=on_progress)
            part.touch()
            try:
                _complete(file, part, on_progress, waits)
            finally:
                if not part.stat().st_size:
                    part.unlink()
            bad = folder / f"{file.name}.bad"
            _check(part, file, bad=bad, advice=f"it is kept as {bad}; run this again for a new one")
            part.replace(target)
    except OSError as error:
        raise DataError(
            f"{file.name} could not be written to {folder}: {error.strerror or error}."
        ) from error
    return target


def _check(path: Path, file: RemoteFile, *, advice: str, bad: Path | None = None) -> None:
    kind, _, expected = file.checksum.partition(":")
    found = pooch.file_hash(str(path), alg=kind)
    if found == expected:
        return
    if bad is not None:
        path.replace(bad)
    raise DataError(
        f"{file.name} is not what it should be: its {kind} is {found}, expected was {expected}; "
        f"{advice}."
    )


class _ConnectionLostError(Exception):
    """The connection failed; another attempt may succeed."""


def _complete(
    file: RemoteFile, part: Path, on_progress: OnProgress, waits: Sequence[float]
) -> None:
    """Request the rest of the file until it is complete."""
    most, failures = part.stat().st_size, 0
    while part.stat().st_size != file.num_bytes:
        try:
            _request_rest(file, part, on_progress)
            return
        except _ConnectionLostError as error:
            size = part.stat().st_size
            failures = 1 if size > most else failures + 1
            most = max(most, size)
            if failures > len(waits):
                raise DataError(
                    f"{file.url} cannot be downloaded: {error}; {size:,} bytes are kept in {part}, "
                    "and running this again goes on from there."
                ) from None
            time.sleep(waits[failures - 1])


def _request_rest(file: RemoteFile, part: Path, on_progress: OnProgress) -> None:
    have = part.stat().st_size
    headers = {"User-Agent": "alfa", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(file.url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            _receive(response, part, have, lambda *size: on_progress(file.name, *size))
    except urllib.error.HTTPError as error:
        with error:
            _raise_http_error(error, file, part, have)
    except urllib.error.URLError as error:
        reason = error.reason
        if isinstance(reason, ssl.SSLCertVerificationError) or (
            isinstance(reason, socket.gaierror | ConnectionRefusedError) and not have
        ):
            raise _unavailable(file, f"it cannot be reached ({reason})") from None
        raise _ConnectionLostError(f"it cannot be reached ({reason})") from None
    except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
        raise _lost(error) from None


def _lost(error: Exception) -> _ConnectionLostError:
    return _ConnectionLostError(f"the connection was cut ({str(error) or type(error).__name__})")


def _receive(
    response: http.client.HTTPResponse,
    part: Path,
    have: int,
    on_progress: Callable[[int, int | None], None],
) -> None:
    """Append the response, or start again if the server sends the whole file."""
    begin = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    goes_on = response.status == 206 and begin is not None and int(begin[1]) == have
    length = response.headers.get("Content-Length")
    done = have if goes_on else 0
    total = done + int(length) if length is not None else None
    with part.open("r+b") as out:
        out.truncate(done)
        out.seek(done)
        on_progress(done, total)
        while block := _next_block(response):
            out.write(block)
            done += len(block)
            on_progress(done, total)
    if total is not None and done < total:
        raise _ConnectionLostError(f"the connection was cut after {done:,} of {total:,} bytes")


def _next_block(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_BLOCK)
    # Separate from errors of the disk.
    except (OSError, http.client.HTTPException) as error:
        raise _lost(error) from None


def _raise_http_error(
    error: urllib.error.HTTPError, file: RemoteFile, part: Path, have: int
) -> None:
    if error.code == 416 and have:
        # The server's file ends before the part on disk, so they differ.
        part.write_bytes(b"")
        raise _ConnectionLostError("the file has changed on the server") from None
    answer = f"the server answered {error.code} ({error.reason})"
    if error.code == 429 or error.code >= 500:
        raise _ConnectionLostError(answer) from None
    raise _unavailable(file, answer) from None


def _unavailable(file: RemoteFile, reason: str) -> DataError:
    untried = "" if file.tried else " (the address was never tried when this was written)"
    return DataError(
        f"{file.url} cannot be downloaded: {reason}{untried}; see {file.page} for where "
        f"{file.name} is now."
    )
