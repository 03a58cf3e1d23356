"""Where under a path a dataset lies, in folders or in archives."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from alfa.data._archives import archive_stem, is_archive, unpack
from alfa.data.sources._base import Workspace
from alfa.data.sources._folders import Found, Reader, files, levels, subfolders
from alfa.errors import DataError

# An archive may lie in another one, but one that holds itself has no end.
_MAX_NESTED = 2


def unpacked(archive: Path, work: Workspace) -> Path:
    """The folder that an archive is unpacked to, now or earlier."""
    place = str(archive.resolve()).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(place).hexdigest()[:8]
    target = work.path / f"{archive_stem(archive)}-{digest}"
    return unpack(archive, target, on_progress=partial(work.on_unpack, archive))


def check_exists(path: Path) -> None:
    """Raise unless there is something.

    Raises:
        DataError: there is nothing at the path.
    """
    if not path.exists():
        raise DataError(f"{path} is not there; give the folder or the archive of the dataset.")


def locate(
    path: Path,
    *,
    work: Workspace,
    readers: Sequence[Reader],
    archives: Sequence[str],
    score: Callable[[Found], int],
    is_complete: Callable[[Found], bool],
    nested: int = 0,
) -> Found:
    """What lies at a path, or in the folders and archives below it.

    Args:
        path: a file, a folder or an archive.
        work: for what must be unpacked.
        readers: of the layouts, the likeliest first.
        archives: patterns of the paths of archives, in lower case, seen from `path`.
        score: how well classes fit; of folders at the same depth the best one is taken.
        is_complete: whether nothing more needs to be unpacked.
        nested: how many archives `path` lies in.

    Raises:
        DataError: there is nothing at the path, or an archive or file cannot be used.
    """
    check_exists(path)
    root = unpacked(path, work) if is_archive(path) else path
    found = _best(root, readers, score)
    if not root.is_dir() or nested > _MAX_NESTED:
        return found
    for archive in archives_in(root, archives):
        if is_complete(found):
            break
        more = locate(
            archive,
            work=work,
            readers=readers,
            archives=archives,
            score=score,
            is_complete=is_complete,
            nested=nested + 1,
        )
        known = {entry.name for entry in found.classes}
        new = [entry for entry in more.classes if entry.name not in known]
        found += Found(new, more.problems if new else ())
    return found


def archives_in(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """The archives in a folder and in the folders in it whose path is like one of the patterns."""
    return [
        path
        for parent in (folder, *subfolders(folder).values())
        for path in files(parent).values()
        if is_archive(path)
        and any(fnmatchcase(path.relative_to(folder).as_posix().lower(), p) for p in patterns)
    ]


def _best(root: Path, readers: Sequence[Reader], score: Callable[[Found], int]) -> Found:
    for level in levels(root) if root.is_dir() else [[root]]:
        matches = [found for path in level if (found := _first(path, readers))]
        if matches:
            return max(matches, key=score)
    return Found()


def _first(path: Path, readers: Sequence[Reader]) -> Found:
    return next((found for read in readers if (found := read(path))), Found())
