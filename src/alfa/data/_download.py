"""Downloads that resume after a lost connection, which `pooch.retrieve` does not support."""

import http.client
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pooch

from alfa._io import locked
from alfa.data.sources import SOURCES, RemoteFile
from alfa.errors import DataError

# Seconds to wait before each new attempt; new bytes reset the count of attempts.
_WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
_TIMEOUT = 30.0
_BLOCK = 1 << 16

OnProgress = Callable[[str, int, int | None], None]
"""Called with the file name, the number of bytes on disk, and the total number if it is known."""


def download(
    dataset: str, folder: Path, *, on_progress: OnProgress = lambda name, done, total: None
) -> list[Path]:
    """Download the files of a dataset into a folder, and return their paths."""
    source = SOURCES.get(dataset)
    manual = source.manual_download
    if manual is not None:
        raise DataError(
            f"{dataset} must be downloaded manually: {manual.reason}. Download {manual.files} from "
            f"{manual.page}, {manual.steps}put it into {folder}, and run `alfa data prepare "
            f"{dataset}`."
        )
    if not source.downloads:
        known = ", ".join(name for name in SOURCES if SOURCES.get(name).downloads)
        raise DataError(f"{dataset} has no files to download; alfa can download {known}.")
    return [fetch(file, folder, on_progress=on_progress) for file in source.downloads]


def fetch(
    file: RemoteFile, folder: Path, *, on_progress: OnProgress = lambda name, done, total: None
) -> Path:
    """Download one file, or the rest of its ``.part`` file, and verify its checksum."""
    target, part = folder / file.name, folder / f"{file.name}.part"
    try:
        if target.exists():
            _verify(target, file, advice="move the file away and try again")
            on_progress(file.name, target.stat().st_size, target.stat().st_size)
            return target
        folder.mkdir(parents=True, exist_ok=True)
        busy = DataError(f"another process is downloading {file.name}; wait until it finishes.")
        with locked(folder / f".{part.name}.lock", busy=busy):
            if target.exists():
                # Another process has just finished.
                return fetch(file, folder, on_progress=on_progress)
            part.touch()
            try:
                _complete(file, part, on_progress)
            finally:
                if not part.stat().st_size:
                    part.unlink()
            bad = folder / f"{file.name}.bad"
            try:
                _verify(part, file, advice=f"the file was renamed to {bad}; download it again")
            except DataError:
                part.replace(bad)
                raise
            part.replace(target)
    except OSError as error:
        raise DataError(
            f"{file.name} could not be written to {folder}: {error.strerror or error}."
        ) from error
    return target


def _verify(path: Path, file: RemoteFile, *, advice: str) -> None:
    kind, _, expected = file.checksum.partition(":")
    found = pooch.file_hash(str(path), alg=kind)
    if found != expected:
        raise DataError(f"the {kind} of {file.name} must be {expected}, got {found}; {advice}.")


class _ConnectionLostError(Exception):
    """A failure after which another attempt may succeed."""


def _complete(file: RemoteFile, part: Path, on_progress: OnProgress) -> None:
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
            if failures > len(_WAITS):
                raise DataError(
                    f"{file.url} cannot be downloaded: {error}; {size:,} bytes are saved in "
                    f"{part}, run the command again to resume."
                ) from None
            time.sleep(_WAITS[failures - 1])


def _request_rest(file: RemoteFile, part: Path, on_progress: OnProgress) -> None:
    have = part.stat().st_size
    headers = {"User-Agent": "alfa", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(file.url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            _receive(response, file, part, on_progress)
        return
    except urllib.error.HTTPError as error:
        error.close()
        reason = f"the server answered {error.code} ({error.reason})"
        # The server's file is shorter than the part on disk, so they differ.
        is_outdated = error.code == 416 and have > 0
        if is_outdated:
            part.write_bytes(b"")
        may_recover = is_outdated or error.code == 429 or error.code >= 500
    except urllib.error.URLError as error:
        reason = f"the server cannot be reached ({error.reason})"
        is_unknown = isinstance(error.reason, socket.gaierror | ConnectionRefusedError)
        is_untrusted = isinstance(error.reason, ssl.SSLCertVerificationError)
        may_recover = not is_untrusted and (have > 0 or not is_unknown)
    except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
        raise _lost(error) from None
    if may_recover:
        raise _ConnectionLostError(reason)
    untested = "" if file.tried else " (the authors of alfa have not tested this address)"
    raise DataError(
        f"{file.url} cannot be downloaded: {reason}{untested}; see {file.page} for the current "
        f"address of {file.name}."
    )


def _lost(error: Exception) -> _ConnectionLostError:
    return _ConnectionLostError(f"the connection was lost ({str(error) or type(error).__name__})")


def _receive(
    response: http.client.HTTPResponse, file: RemoteFile, part: Path, on_progress: OnProgress
) -> None:
    """Append the response, or overwrite the part if the server sends the whole file."""
    have = part.stat().st_size
    begin = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    resumes = response.status == 206 and begin is not None and int(begin[1]) == have
    length = response.headers.get("Content-Length")
    done = have if resumes else 0
    total = done + int(length) if length is not None else None
    with part.open("r+b") as out:
        out.truncate(done)
        out.seek(done)
        on_progress(file.name, done, total)
        while block := _next_block(response):
            out.write(block)
            done += len(block)
            on_progress(file.name, done, total)
    if total is not None and done < total:
        raise _ConnectionLostError(f"the connection was lost after {done:,} of {total:,} bytes")


def _next_block(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_BLOCK)
    # Errors of the disk are OSErrors too, so only this call is guarded.
    except (OSError, http.client.HTTPException) as error:
        raise _lost(error) from None
