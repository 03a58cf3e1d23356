"""Unpack archives without writing outside the target folder."""

from __future__ import annotations

import io
import json
import lzma
import os
import posixpath
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import IO

from alfa.errors import DataError

SUFFIXES = (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", ".tbz2", ".txz", ".tar", ".zip")
MARK = ".alfa-unpacked.json"

# Images hardly compress, so an archive that expands by more is a bomb, unless it is small.
MAX_RATIO = 100
ALWAYS_ALLOWED = 1 << 20
# The longest chain of links that is followed; a cycle of links has no end.
_MAX_LINKS = 40
_MAX_PADDING = 1 << 24
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    ValueError,
)
# Errors of an archive in which a file is also a folder.
_COLLISIONS = (FileExistsError, NotADirectoryError, IsADirectoryError)


def is_archive(path: Path) -> bool:
    """Return True if the path is a file with an archive suffix."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def archive_stem(path: Path) -> str:
    """Return the file name of an archive without its suffix."""
    suffix = next((s for s in SUFFIXES if path.name.lower().endswith(s)), "")
    return path.name[: len(path.name) - len(suffix)]


def unpack(
    archive: Path,
    target: Path,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Unpack a zip or tar archive into the folder `target`, completely or not at all.

    An archive that was unpacked there before, by name, size, and time, is skipped; another archive
    replaces it. Links become hard links or copies. `on_progress` receives the number of bytes read
    and the size of the archive.
    """
    if not archive.is_file():
        raise DataError(f"there is no archive {archive}.")
    status = archive.stat()
    mark = {"name": archive.name, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    try:
        unpacked = json.loads((target / MARK).read_text())
    except (OSError, ValueError):
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise DataError(
                f"{archive} cannot be unpacked: {target} contains other files; move them away."
            ) from None
    else:
        if unpacked == mark:
            return target
    # Only one process uses the parent folder, so an existing folder is left over from a killed one.
    unfinished = target.with_name(f".{target.name}.unpacking")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        _unpack_into(unfinished, archive, on_progress)
        (unfinished / MARK).write_text(json.dumps(mark))
        if target.exists():
            shutil.rmtree(target)
        unfinished.replace(target)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return target


def read_zip(
    content: bytes, *, name: str, max_files: int, max_bytes: int
) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of each file in a zip without writing to disk.

    Raises a DataError with the archive's `name` if the zip is damaged, contains more than
    `max_files` files or `max_bytes` unpacked bytes, or has a path that leads outside it.
    """
    archive, num_files, unpacked = Path(name), 0, 0
    try:
        for member, read in _zip_members(io.BytesIO(content), archive):
            place = _place(member.name, member.name, archive)
            if member.isdir():
                continue
            if not member.isreg():
                raise _refused(archive, member.name, "a link or a device, not a file")
            num_files, unpacked = num_files + 1, unpacked + member.size
            if num_files > max_files:
                raise DataError(f"{archive} is refused: it has more than {max_files:,} files.")
            if unpacked > max_bytes:
                raise DataError(
                    f"{archive} is refused: with {member.name!r}, it unpacks to more than "
                    f"{max_bytes:,} bytes."
                )
            with read() as source:
                found = source.read(member.size)
            if len(found) != member.size:
                raise EOFError(f"{member.name} is truncated")
            yield place, found
    # Decompressors also raise OSError, and no disk is involved here.
    except (*_DAMAGE, OSError) as error:
        raise _damaged(archive, error) from None


def _unpack_into(folder: Path, archive: Path, on_progress: Callable[[int, int], None]) -> None:
    total = archive.stat().st_size
    limit = max(ALWAYS_ALLOWED, int(MAX_RATIO * total))
    members = _zip_members if archive.name.lower().endswith(".zip") else _tar_members
    links: dict[str, tarfile.TarInfo] = {}
    unpacked = 0
    try:
        with archive.open("rb") as raw:
            for member, read in members(raw, archive):
                place = _place(member.name, member.name, archive)
                if member.isdir():
                    (folder / place).mkdir(parents=True, exist_ok=True)
                elif member.issym() or member.islnk():
                    links[place] = member
                elif member.isreg():
                    unpacked += member.size
                    if unpacked > limit:
                        raise DataError(
                            f"{archive} is refused: with {member.name!r}, it unpacks to more than "
                            f"{limit:,} bytes, {MAX_RATIO:g} times its size; it may be a zip bomb."
                        )
                    (folder / place).parent.mkdir(parents=True, exist_ok=True)
                    with read() as source, (folder / place).open("wb") as file:
                        shutil.copyfileobj(source, file, 1 << 20)
                        if file.tell() != member.size:
                            raise EOFError(f"{member.name} is truncated")
                else:
                    raise _refused(archive, member.name, "a device, not a file")
                on_progress(raw.tell(), total)
        _link(folder, links, archive, limit - unpacked)
        on_progress(total, total)
    except (*_DAMAGE, OSError) as error:
        # Errors of decompressors have no number; errors of the system, such as a full disk, do.
        number = getattr(error, "errno", None)
        if number is not None and not isinstance(error, _COLLISIONS):
            raise
        raise _damaged(archive, error) from None


def _damaged(archive: Path, error: Exception) -> DataError:
    return DataError(f"{archive} is damaged or has the wrong type ({error}); get a new copy.")


def _refused(archive: Path, name: str, what: str) -> DataError:
    return DataError(f"{archive} is refused: its member {name!r} is {what}.")


def _place(path: str, member: str, archive: Path) -> str:
    """Return a normalized relative path; unlike tarfile's filters, raise if it leads outside."""
    plain = path.replace("\\", "/")
    outside = plain.startswith("/") or ".." in plain.split("/") or PureWindowsPath(plain).drive
    if outside or "\0" in plain:
        raise _refused(archive, member, f"a path or link to {path!r}, outside the target folder")
    return posixpath.normpath(plain)


def _link(folder: Path, links: dict[str, tarfile.TarInfo], archive: Path, max_bytes: int) -> None:
    """Create the files that the links point to; no symbolic link is ever written to disk."""
    targets = {}
    for place, member in links.items():
        # A symbolic link is relative to its own folder, a hard link to the archive.
        base = posixpath.dirname(member.name) if member.issym() else ""
        target = posixpath.join(base, member.linkname.replace("\\", "/"))
        targets[place] = _place(posixpath.normpath(target), member.name, archive)
    for place, target in targets.items():
        for _ in range(_MAX_LINKS):
            target = targets.get(target, target)
        if target == place or not (folder / target).is_file():
            what = f"a link to {links[place].linkname!r}, which is not a file in the archive"
            raise _refused(archive, links[place].name, what)
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        try:
            os.link(folder / target, path)
        except OSError:
            # Some file systems have no hard links.
            max_bytes -= (folder / target).stat().st_size
            if max_bytes < 0:
                what = "a link whose copy exceeds the size limit"
                raise _refused(archive, links[place].name, what) from None
            shutil.copyfile(folder / target, path)


_Members = Iterator[tuple[tarfile.TarInfo, Callable[[], IO[bytes]]]]
"""Members of a zip or tar as `TarInfo`, each with a function that opens the file."""


def _zip_members(raw: IO[bytes], archive: Path) -> _Members:
    with zipfile.ZipFile(raw) as file:
        for info in file.infolist():
            member = tarfile.TarInfo(info.filename)
            mode = info.external_attr >> 16
            if info.flag_bits & 1:
                raise _refused(archive, info.filename, "encrypted; decrypt the archive first")
            if stat.S_ISLNK(mode):
                member.type = tarfile.SYMTYPE
                member.linkname = file.read(info).decode() if info.file_size < 4096 else "/"
            elif info.filename.endswith(("/", "\\")):
                member.type = tarfile.DIRTYPE
            elif stat.S_IFMT(mode) in (0, stat.S_IFREG):
                member.size = info.file_size
            else:
                member.type = tarfile.CHRTYPE
            yield member, partial(file.open, info)


class _StrictTarInfo(tarfile.TarInfo):
    """A header that raises if it is damaged; tarfile would stop as at the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _StrictTarInfo:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            # An empty block or zeros mark the end.
            if any(buf):
                raise tarfile.ReadError(str(error)) from None
            raise


def _tar_members(raw: IO[bytes], archive: Path) -> _Members:
    with tarfile.open(fileobj=raw, mode="r:*", tarinfo=_StrictTarInfo) as file:
        for member in file:
            yield member, partial(file.extractfile, member)  # type: ignore[misc]
            # Otherwise tarfile keeps all members in memory.
            file.members.clear()  # type: ignore[attr-defined]
        # Read to the end, so that gzip verifies its checksum behind the padding of the tar.
        assert file.fileobj is not None
        for _ in range(_MAX_PADDING >> 20):
            if not file.fileobj.read(1 << 20):
                return
        raise tarfile.ReadError("there is more data behind its end")
