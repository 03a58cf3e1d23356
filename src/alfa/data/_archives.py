"""Archives unpacked into a folder, and nowhere else."""

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

# Images hardly shrink in an archive, so an archive that grows this much is no dataset; a small one
# does no harm.
MAX_RATIO = 100
ALWAYS_ALLOWED = 1 << 20
# A link may point to another link, but a circle of links ends nowhere.
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


def is_archive(path: Path) -> bool:
    """Whether a path is a file with the suffix of an archive."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def archive_stem(path: Path) -> str:
    """The name of an archive without its suffix."""
    suffix = next((s for s in SUFFIXES if path.name.lower().endswith(s)), "")
    return path.name[: len(path.name) - len(suffix)]


def unpack(
    archive: Path,
    target: Path,
    *,
    max_ratio: float = MAX_RATIO,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Unpack an archive into a folder, completely or not at all.

    Does nothing if this archive, by its name, size and time, was unpacked there before. Links
    become copies, or hard links, of the files that they point to.

    Args:
        archive: a zip, or a tar that may be compressed by gzip, bzip2 or xz.
        target: the folder to make; the content of another archive is replaced.
        max_ratio: how many times its own size it may unpack to.
        on_progress: is called with the number of bytes read and the size of the archive.

    Returns:
        The folder.

    Raises:
        DataError: it is missing, damaged, encrypted or too large, would write outside of the
            folder, or the folder contains something else.
    """
    if not archive.is_file():
        raise DataError(f"there is no archive {archive}.")
    status = archive.stat()
    mark = {"name": archive.name, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    found = _read_mark(target)
    if found == mark:
        return target
    if found is None and target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise DataError(
            f"{archive} cannot be unpacked to {target}, which holds something else; move that away."
        )
    # Only one process uses the folder around it, so a killed one has left what is there.
    unfinished = target.with_name(f".{target.name}.unpacking")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        _unpack_into(unfinished, archive, max_ratio, on_progress)
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
    """The files of a zip, one after the other, without writing any of them to disk.

    Args:
        content: the archive.
        name: of the archive, for error messages.
        max_files: the number of files that it may have.
        max_bytes: the size of all files, unpacked, that it may have.

    Yields:
        The path of each file within the archive, and its content.

    Raises:
        DataError: it is damaged, exceeds a limit, or has a path that leads out of it.
    """
    archive, num_files, unpacked = Path(name), 0, 0
    try:
        for member, read in _zip_members(io.BytesIO(content), archive):
            place = _place(member.name, member.name, archive)
            if member.isdir():
                continue
            if not member.isreg():
                what = "a link" if member.issym() else "a device"
                raise _refused(archive, member.name, f"{what}, not a file")
            num_files, unpacked = num_files + 1, unpacked + member.size
            if num_files > max_files:
                raise DataError(f"{archive} is refused: it has more than {max_files:,} files.")
            if unpacked > max_bytes:
                raise DataError(
                    f"{archive} is refused: with {member.name!r} it unpacks to more than "
                    f"{max_bytes:,} bytes."
                )
            with read() as source:
                found = source.read(member.size)
            _check_length(member, len(found))
            yield place, found
    # Decompressors raise OSError, too, and nothing here is on a disk.
    except (*_DAMAGE, OSError) as error:
        raise _damaged(archive, error) from None


def _read_mark(target: Path) -> object:
    try:
        return json.loads((target / MARK).read_text())
    except (OSError, ValueError):
        return None


def _unpack_into(
    folder: Path, archive: Path, max_ratio: float, on_progress: Callable[[int, int], None]
) -> None:
    total = archive.stat().st_size
    limit = max(ALWAYS_ALLOWED, int(max_ratio * total))
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
                            f"{archive} is refused: with {member.name!r} it unpacks to more than "
                            f"{limit:,} bytes, {max_ratio:g} times its size, which no dataset does."
                        )
                    _write(folder / place, member, read)
                else:
                    raise _refused(archive, member.name, "a device, not a file")
                on_progress(raw.tell(), total)
        _link(folder, links, archive, limit - unpacked)
        on_progress(total, total)
    except _DAMAGE as error:
        raise _damaged(archive, error) from None
    except OSError as error:
        # A decompressor's error has no number; an error of the system, such as a full disk, has.
        collided = isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError)
        if error.errno is not None and not collided:
            raise
        raise _damaged(archive, error) from None


def _damaged(archive: Path, error: Exception) -> DataError:
    return DataError(
        f"{archive} is damaged, or not the archive that its name says ({error}); get it again."
    )


def _refused(archive: Path, name: str, what: str) -> DataError:
    return DataError(f"{archive} is refused: its member {name!r} is {what}.")


def _check_length(member: tarfile.TarInfo, length: int) -> None:
    if length != member.size:
        raise EOFError(f"{member.name} has {length} bytes instead of {member.size}")


def _place(path: str, member: str, archive: Path) -> str:
    """The path relative to the folder; unlike tarfile's filters, raises if it leads outside."""
    plain = path.replace("\\", "/")
    outside = plain.startswith("/") or ".." in plain.split("/") or PureWindowsPath(plain).drive
    if outside or "\0" in plain:
        raise DataError(
            f"{archive} is refused: its member {member!r} leads to {path!r}, outside of the "
            "folder that it is unpacked to."
        )
    return posixpath.normpath(plain)


def _write(path: Path, member: tarfile.TarInfo, read: Callable[[], IO[bytes]]) -> None:
    # Most files lie in the folder of the one before.
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
    with read() as source, path.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
        _check_length(member, file.tell())


def _link(folder: Path, links: dict[str, tarfile.TarInfo], archive: Path, max_bytes: int) -> None:
    """Make the files that links stand for; no link that could be followed is ever on disk."""
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
            what = f"a link to {links[place].linkname!r}, which is not a file of the archive"
            raise _refused(archive, links[place].name, what)
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        try:
            os.link(folder / target, path)
        except OSError:
            # Some disks have no hard links.
            max_bytes -= (folder / target).stat().st_size
            if max_bytes < 0:
                what = "a link, whose copy is more than it may unpack to"
                raise _refused(archive, links[place].name, what) from None
            shutil.copyfile(folder / target, path)


_Members = Iterator[tuple[tarfile.TarInfo, Callable[[], IO[bytes]]]]
"""The members of a tar, or a zip's in the same form, and a function that opens each file."""


def _zip_members(raw: IO[bytes], archive: Path) -> _Members:
    with zipfile.ZipFile(raw) as file:
        for info in file.infolist():
            member = tarfile.TarInfo(info.filename)
            mode = info.external_attr >> 16
            if info.flag_bits & 1:
                raise _refused(archive, info.filename, "encrypted, and there is no password")
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
    """Raises if a header is damaged; tarfile takes it for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _StrictTarInfo:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            # Nothing, or zeros, are the end.
            if any(buf):
                raise tarfile.ReadError(str(error)) from None
            raise


def _tar_members(raw: IO[bytes], archive: Path) -> _Members:
    with tarfile.open(fileobj=raw, mode="r:*", tarinfo=_StrictTarInfo) as file:
        for member in file:
            yield member, partial(file.extractfile, member)  # type: ignore[misc]
            # tarfile would keep all members in memory.
            file.members.clear()  # type: ignore[attr-defined]
        # Reach the checksum, which gzip has behind the padding that ends a tar.
        assert file.fileobj is not None
        for _ in range(_MAX_PADDING >> 20):
            if not file.fileobj.read(1 << 20):
                return
        raise tarfile.ReadError("there is more behind its end")
