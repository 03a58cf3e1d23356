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
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import IO, Any, Literal

from alfa.errors import DataError

SUFFIXES = (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", ".tbz2", ".txz", ".tar", ".zip")
MARK = ".alfa-unpacked.json"

# Images hardly shrink in an archive, so that one which grows like this is no dataset; a small one
# does no harm, however much it grows.
MAX_RATIO = 100
ALWAYS_ALLOWED = 1 << 20
# A link may point to another one, but a circle of them ends nowhere.
MAX_LINKS = 40
MAX_PADDING = 1 << 24

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
    """Whether a path is a file that is called an archive."""
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

    Where this archive, by its name, size and time, was unpacked already, nothing is done.

    Args:
        archive: a zip, or a tar that may be compressed by gzip, bzip2 or xz.
        target: the folder to make; what another archive left there is replaced.
        max_ratio: how many times its own size it may unpack to.
        on_progress: called with the bytes of the archive that were read, and all of them.

    Returns:
        The folder.

    Raises:
        DataError: it is missing, damaged, encrypted or too large, would write outside of the
            folder, or the folder holds something else.
    """
    if not archive.is_file():
        raise DataError(f"there is no archive {archive}.")
    mark = _mark_of(archive)
    found = _read_mark(target)
    if found == mark:
        return target
    if found is None and target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise DataError(
            f"{archive} cannot be unpacked to {target}, which holds something else; move that away."
        )
    # The folder around it is one process's alone, so that what is there was left by one that was
    # killed.
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
        name: what it is called, for the sentence of an error.
        max_files: how many files it may have.
        max_bytes: how much all of them may be, unpacked.

    Yields:
        The path of each within the archive, and its content.

    Raises:
        DataError: it is damaged, has more than is allowed, or a path that leads out of it.
    """
    archive, read, unpacked = Path(name), 0, 0
    try:
        for member in _zip_members(io.BytesIO(content), archive):
            place = _place(member.name, member.name, archive)
            if member.kind == "link":
                raise _refused(archive, member.name, "a link, not a file")
            read, unpacked = read + (member.kind == "file"), unpacked + member.size
            if read > max_files:
                raise DataError(f"{archive} is refused: it has more than {max_files:,} files.")
            if unpacked > max_bytes:
                raise DataError(
                    f"{archive} is refused: with {member.name!r} it unpacks to more than "
                    f"{max_bytes:,} bytes."
                )
            source = member.open()
            if source is None:
                continue
            with source:
                found = source.read(member.size)
            if len(found) != member.size:
                raise EOFError(f"{member.name} has {len(found)} bytes instead of {member.size}")
            yield place, found
    # Decompressors raise errors of the system, too, and nothing here is on a disk.
    except (*_DAMAGE, OSError) as error:
        raise _damaged(archive, error) from None


def _mark_of(archive: Path) -> dict[str, Any]:
    status = archive.stat()
    return {"name": archive.name, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _read_mark(target: Path) -> object:
    try:
        return json.loads((target / MARK).read_text())
    except (OSError, ValueError):
        return None


@dataclass(frozen=True)
class _Member:
    """One entry of an archive.

    Attributes:
        name: its path, as the archive has it.
        kind: what it is.
        size: of a file, unpacked, as the archive declares it.
        open: gives the content of a file.
        target: what a link points to, seen from the archive's root.
    """

    name: str
    kind: Literal["file", "folder", "link"]
    size: int = 0
    open: Callable[[], IO[bytes] | None] = lambda: None
    target: str = ""


def _unpack_into(
    folder: Path, archive: Path, max_ratio: float, on_progress: Callable[[int, int], None]
) -> None:
    total = archive.stat().st_size
    limit = max(ALWAYS_ALLOWED, int(max_ratio * total))
    read = _zip_members if archive.name.lower().endswith(".zip") else _tar_members
    links: dict[str, _Member] = {}
    unpacked = 0
    try:
        with archive.open("rb") as raw:
            for member in read(raw, archive):
                place = _place(member.name, member.name, archive)
                unpacked += member.size
                if unpacked > limit:
                    raise DataError(
                        f"{archive} is refused: with {member.name!r} it unpacks to more than "
                        f"{limit:,} bytes, {max_ratio:g} times its size, which no dataset does."
                    )
                if member.kind == "link":
                    links[place] = member
                else:
                    _write(folder / place, member)
                on_progress(raw.tell(), total)
        _link(folder, links, archive, limit - unpacked)
        on_progress(total, total)
    except _DAMAGE as error:
        raise _damaged(archive, error) from None
    except OSError as error:
        # A decompressor's complaint has no number; one of the system, such as a full disk, has.
        collided = isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError)
        if error.errno is not None and not collided:
            raise
        raise _damaged(archive, error) from None


def _damaged(archive: Path, error: Exception) -> DataError:
    return DataError(
        f"{archive} is damaged, or not the archive that its name says ({error}); get it again."
    )


def _place(path: str, member: str, archive: Path) -> str:
    """Where in the folder a path of the archive leads."""
    plain = path.replace("\\", "/")
    outside = plain.startswith("/") or ".." in plain.split("/") or PureWindowsPath(plain).drive
    if outside or "\0" in plain:
        raise DataError(
            f"{archive} is refused: its member {member!r} leads to {path!r}, outside of the "
            "folder that it is unpacked to."
        )
    return posixpath.normpath(plain)


def _write(path: Path, member: _Member) -> None:
    if member.kind == "folder":
        path.mkdir(parents=True, exist_ok=True)
        return
    # Most files lie in the folder of the one before.
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
    source = member.open()
    if source is None:
        raise EOFError(f"{member.name} has no content")
    with source, path.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
        if file.tell() != member.size:
            raise EOFError(f"{member.name} has {file.tell()} bytes instead of {member.size}")


def _link(folder: Path, links: dict[str, _Member], archive: Path, room: int) -> None:
    """Make what the links stand for; none is ever on disk as a link that could be followed.

    Args:
        folder: that everything else was unpacked to.
        links: by where they lie in it.
        archive: that they are from.
        room: bytes that may still be written.
    """
    targets = {
        place: _place(posixpath.normpath(member.target.replace("\\", "/")), member.name, archive)
        for place, member in links.items()
    }
    for place, target in targets.items():
        for _ in range(MAX_LINKS):
            target = targets.get(target, target)
        if target == place or not (folder / target).is_file():
            raise DataError(
                f"{archive} is refused: its member {links[place].name!r} is a link to "
                f"{links[place].target!r}, which is not a file of the archive."
            )
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        try:
            os.link(folder / target, path)
        except OSError:
            # Some disks have no such links.
            room -= (folder / target).stat().st_size
            if room < 0:
                what = "a link, whose copy is more than it may unpack to"
                raise _refused(archive, links[place].name, what) from None
            shutil.copyfile(folder / target, path)


def _refused(archive: Path, name: str, what: str) -> DataError:
    return DataError(f"{archive} is refused: its member {name!r} is {what}.")


def _zip_members(raw: IO[bytes], archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(raw) as file:
        for info in file.infolist():
            mode = info.external_attr >> 16
            if info.flag_bits & 1:
                raise _refused(archive, info.filename, "encrypted, and there is no password")
            if stat.S_ISLNK(mode):
                target = file.read(info).decode() if info.file_size < 4096 else "/"
                yield _linked(info.filename, target)
            elif info.filename.endswith(("/", "\\")):
                yield _Member(info.filename, "folder")
            elif stat.S_IFMT(mode) in (0, stat.S_IFREG):
                yield _Member(info.filename, "file", info.file_size, partial(file.open, info))
            else:
                raise _refused(archive, info.filename, "a device, not a file")


class _StrictTarInfo(tarfile.TarInfo):
    """A header that is damaged raises, where tarfile takes it for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _StrictTarInfo:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            # Nothing, or zeros, are the end.
            if any(buf):
                raise tarfile.ReadError(str(error)) from None
            raise


def _tar_members(raw: IO[bytes], archive: Path) -> Iterator[_Member]:
    with tarfile.open(fileobj=raw, mode="r:*", tarinfo=_StrictTarInfo) as file:
        for info in file:
            if info.isdir():
                yield _Member(info.name, "folder")
            elif info.issym():
                yield _linked(info.name, info.linkname)
            elif info.islnk():
                yield _Member(info.name, "link", target=info.linkname)
            elif info.isreg():
                yield _Member(info.name, "file", info.size, partial(file.extractfile, info))
            else:
                raise _refused(archive, info.name, "a device, not a file")
            # tarfile remembers every member, which is of no use here.
            file.members.clear()  # type: ignore[attr-defined]
        _read_to_end(file)


def _read_to_end(file: tarfile.TarFile) -> None:
    """Reach the checksum, which gzip has behind the padding that ends a tar."""
    assert file.fileobj is not None
    for _ in range(MAX_PADDING >> 20):
        if not file.fileobj.read(1 << 20):
            return
    raise tarfile.ReadError("there is more behind its end")


def _linked(name: str, target: str) -> _Member:
    """A symbolic link, whose target is seen from where the link lies."""
    seen = posixpath.join(posixpath.dirname(name), target.replace("\\", "/"))
    return _Member(name, "link", target=seen)
