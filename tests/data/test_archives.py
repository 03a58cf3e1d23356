import errno
import io
import os
import stat
import tarfile
import zipfile

import pytest

from alfa.data import _archives
from alfa.data._archives import MARK, archive_stem, is_archive, read_zip, unpack
from alfa.errors import DataError

FILES = {"data/a/1.png": b"one", "data/a/2.png": b"", "data/b/ü.png": os.urandom(3000)}
MODES = {
    ".tar": "w",
    ".tar.gz": "w:gz",
    ".tgz": "w:gz",
    ".tar.bz2": "w:bz2",
    ".tbz2": "w:bz2",
    ".tar.xz": "w:xz",
    ".txz": "w:xz",
}
SUFFIXES = [".zip", *MODES]


def write_tar(path, files, *, mode="w", extra=()):
    with tarfile.open(path, mode) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for info in extra:
            tar.addfile(info)
    return path


def write_zip(path, files, *, extra=()):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
        for info, content in extra:
            file.writestr(info, content)
    return path


def write(folder, suffix, files=FILES):
    path = folder / f"birds{suffix}"
    if suffix == ".zip":
        return write_zip(path, files)
    return write_tar(path, files, mode=MODES[suffix])


def content_of(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != MARK
    }


def tar_link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_link(name, target):
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info, target


def no_link(*names):
    """Fail like a file system without hard links."""
    raise PermissionError(errno.EPERM, "Operation not permitted")


def refuses(archive, folder, match):
    """Check that unpacking raises and leaves no files in the folder or outside it."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(DataError, match=match) as caught:
        unpack(archive, folder / "work" / "out")
    assert str(archive) in str(caught.value)
    work = folder / "work"
    assert sorted(set(folder.rglob("*")) - {work}) == before
    return str(caught.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_kind_is_unpacked(tmp_path, suffix):
    archive = write(tmp_path, suffix)
    assert is_archive(archive)
    assert archive_stem(archive) == "birds"
    target = tmp_path / "work" / "out"
    assert unpack(archive, target) == target
    assert content_of(target) == FILES
    assert [path.name for path in target.parent.iterdir()] == ["out"]


def test_names_that_are_no_archives(tmp_path):
    (tmp_path / "folder.zip").mkdir()
    (tmp_path / "a.png").touch()
    assert not any(map(is_archive, [*tmp_path.iterdir(), tmp_path / "missing.zip"]))
    (tmp_path / "A.ZIP").touch()
    assert is_archive(tmp_path / "A.ZIP")


def test_folders_and_names_with_backslashes(tmp_path):
    archive = write_zip(tmp_path / "a.zip", {"x\\": b"", "x\\y\\1.png": b"1", "z/": b""})
    target = unpack(archive, tmp_path / "out")
    assert content_of(target) == {"x/y/1.png": b"1"}
    assert (target / "z").is_dir()


def test_what_is_unpacked_is_found_again(tmp_path, monkeypatch):
    archive = write(tmp_path, ".tar.gz")
    target = unpack(archive, tmp_path / "out")
    (target / "data" / "a" / "1.png").write_bytes(b"looked at")
    monkeypatch.setattr(_archives, "_unpack_into", None)
    assert unpack(archive, target) == target
    assert (target / "data" / "a" / "1.png").read_bytes() == b"looked at"


def test_an_archive_that_changed_is_unpacked_again(tmp_path):
    archive = write(tmp_path, ".zip")
    target = unpack(archive, tmp_path / "out")
    write(tmp_path, ".zip", {"other.png": b"2"})
    unpack(archive, target)
    assert content_of(target) == {"other.png": b"2"}
    os.utime(archive, ns=(0, 0))
    (target / "other.png").unlink()
    unpack(archive, target)
    assert content_of(target) == {"other.png": b"2"}


def test_what_is_not_ours_is_never_replaced(tmp_path):
    archive = write(tmp_path, ".zip")
    target = tmp_path / "out"
    target.mkdir()
    (target / "thesis.txt").write_text("all of it")
    with pytest.raises(DataError, match="contains other files; move them away"):
        unpack(archive, target)
    assert content_of(target) == {"thesis.txt": b"all of it"}
    (target / "thesis.txt").unlink()
    assert content_of(unpack(archive, target)) == FILES


def test_an_unpacking_that_broke_off_leaves_nothing_and_can_be_repeated(tmp_path, monkeypatch):
    archive = write(tmp_path, ".tar")
    calls = []

    def interrupt(done, total):
        calls.append(done)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(archive, tmp_path / "work" / "out", on_progress=interrupt)
    assert list((tmp_path / "work").iterdir()) == []
    # Leftovers of a killed process are ignored.
    stale = tmp_path / "work" / f".out.{os.getpid()}.unpacking"
    stale.mkdir()
    (stale / "half.png").touch()
    assert content_of(unpack(archive, tmp_path / "work" / "out")) == FILES


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_progress_reaches_the_end(tmp_path, suffix):
    archive = write(tmp_path, suffix)
    told = []
    unpack(archive, tmp_path / "out", on_progress=lambda *args: told.append(args))
    size = archive.stat().st_size
    assert told[-1] == (size, size)
    assert {total for _, total in told} == {size}
    assert len(told) == len(FILES) + 1
    assert all(0 <= done <= size for done, _ in told)


OUTSIDE = [
    "/tmp/evil.png",
    "../evil.png",
    "a/../../evil.png",
    "a/..",
    "..\\evil.png",
    "C:\\x",
    "\\x",
]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_a_path_that_leads_outside_is_refused(tmp_path, suffix, name):
    archive = write(tmp_path, suffix, {"good.png": b"1", name: b"evil"})
    message = refuses(archive, tmp_path, "is refused: its member .* outside the target folder")
    assert repr(name) in message


@pytest.mark.parametrize("target", ["/etc/passwd", "../../evil", "../..", "/"])
@pytest.mark.parametrize("kind", ["symbolic", "hard", "zip"])
def test_a_link_that_leads_outside_is_refused(tmp_path, kind, target):
    if kind == "zip":
        archive = write_zip(tmp_path / "a.zip", {}, extra=[zip_link("x/link", target)])
    else:
        type_ = tarfile.SYMTYPE if kind == "symbolic" else tarfile.LNKTYPE
        archive = write_tar(tmp_path / "a.tar", {}, extra=[tar_link("x/link", target, type_)])
    assert "'x/link'" in refuses(archive, tmp_path, "outside the target folder")


def test_a_link_is_not_written_through(tmp_path):
    extra = [tar_link("x", str(tmp_path / "victim"))]
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(extra[0])
        info = tarfile.TarInfo("x/evil.png")
        info.size = 1
        tar.addfile(info, io.BytesIO(b"1"))
    (tmp_path / "victim").mkdir()
    refuses(archive, tmp_path, "its member 'x' is a path or link to")


@pytest.mark.parametrize("has_links", [True, False], ids=["links", "no links"])
@pytest.mark.parametrize("kind", ["symbolic", "zip"])
def test_links_inside_become_what_they_stand_for(tmp_path, kind, has_links, monkeypatch):
    if not has_links:
        monkeypatch.setattr(os, "link", no_link)
    links = {"b/link.png": "../a/1.png", "c/link.png": "../b/link.png"}
    if kind == "zip":
        extra = [zip_link(*pair) for pair in links.items()]
        archive = write_zip(tmp_path / "a.zip", {"a/1.png": b"1"}, extra=extra)
    else:
        extra = [tar_link(*pair) for pair in links.items()]
        extra.append(tar_link("d/hard.png", "a/1.png", tarfile.LNKTYPE))
        archive = write_tar(tmp_path / "a.tar", {"a/1.png": b"1"}, extra=extra)
    target = unpack(archive, tmp_path / "out")
    found = content_of(target)
    assert {found[name] for name in ("a/1.png", *links)} == {b"1"}
    assert not any(path.is_symlink() for path in target.rglob("*"))


def test_copies_in_the_place_of_links_are_no_way_around_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(_archives, "ALWAYS_ALLOWED", 10_000)
    extra = [tar_link(f"b/{number}.png", "../a/1.png") for number in range(20)]
    archive = write_tar(tmp_path / "a.tar", {"a/1.png": bytes(900)}, extra=extra)
    monkeypatch.setattr(_archives, "MAX_RATIO", 0.1)
    with pytest.raises(DataError, match="a link whose copy exceeds the size limit"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_was_left_by_those_that_were_killed_goes(tmp_path):
    (tmp_path / ".out.unpacking/deep").mkdir(parents=True)
    unpack(write_zip(tmp_path / "a.zip", {"a/1.png": b"1"}), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "out"]


@pytest.mark.parametrize("links", [{"a": "b"}, {"a": "b", "b": "a"}, {"a": "a"}, {"a": "."}])
def test_a_link_to_nothing_is_refused(tmp_path, links):
    extra = [tar_link(*pair) for pair in links.items()]
    archive = write_tar(tmp_path / "a.tar", {"x.png": b"1"}, extra=extra)
    refuses(archive, tmp_path, "its member 'a' is a link to .* not a file in the archive")


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_are_refused(tmp_path, kind):
    archive = write_tar(tmp_path / "a.tar", FILES, extra=[tar_link("null", "", kind)])
    refuses(archive, tmp_path, "its member 'null' is a device")


def test_a_device_in_a_zip_is_refused(tmp_path):
    info = zipfile.ZipInfo("null")
    info.external_attr = (stat.S_IFCHR | 0o666) << 16
    archive = write_zip(tmp_path / "a.zip", FILES, extra=[(info, b"")])
    refuses(archive, tmp_path, "its member 'null' is a device")


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz", ".tar.xz"])
def test_a_bomb_is_refused(tmp_path, suffix, monkeypatch):
    files = {"good.png": b"1", "zeros.png": bytes(8 << 20)}
    archive = write(tmp_path, suffix, files)
    message = refuses(archive, tmp_path, "times its size; it may be a zip bomb")
    assert "'zeros.png'" in message
    monkeypatch.setattr(_archives, "MAX_RATIO", 1e5)
    assert len(content_of(unpack(archive, tmp_path / "out"))) == 2


def test_many_small_parts_make_a_bomb_too(tmp_path):
    archive = write_zip(tmp_path / "a.zip", {f"{n}.png": bytes(1 << 19) for n in range(20)})
    refuses(archive, tmp_path, r"is refused: with '\d+\.png', it unpacks to more than [\d,]+ bytes")


def test_a_zip_that_lies_about_its_sizes_is_refused(tmp_path):
    archive = write_zip(tmp_path / "a.zip", {"zeros.png": bytes(4 << 20)})
    content = archive.read_bytes()
    archive.write_bytes(content.replace((4 << 20).to_bytes(4, "little"), (9).to_bytes(4, "little")))
    refuses(archive, tmp_path, "is damaged or has the wrong type")


def test_an_encrypted_zip_is_refused(tmp_path):
    archive = write_zip(tmp_path / "a.zip", {"a.png": b"1"})
    content = bytearray(archive.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 1
    archive.write_bytes(content)
    refuses(archive, tmp_path, "its member 'a.png' is encrypted")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("how", ["cut", "page", "empty", "flipped"])
def test_a_damaged_archive_is_named(tmp_path, suffix, how):
    archive = write(tmp_path, suffix)
    content = bytearray(archive.read_bytes())
    if how == "flipped":
        # In a tar without compression only its headers are checked, and the second is hit.
        middle = 1024 + 10 if suffix == ".tar" else len(content) // 2
        content[middle : middle + 8] = bytes(byte ^ 255 for byte in content[middle : middle + 8])
    changed = {
        "cut": content[: len(content) * 2 // 3] if suffix != ".tar" else content[:3500],
        "page": b"<!DOCTYPE html><html>Sign in to download</html>",
        "empty": b"",
        "flipped": content,
    }
    archive.write_bytes(changed[how])
    refuses(archive, tmp_path, "is damaged or has the wrong type")


def test_what_lies_behind_the_end_of_a_tar_is_not_lost_in_silence(tmp_path):
    archive = write(tmp_path, ".tar")
    archive.write_bytes(archive.read_bytes() * 3000)
    refuses(archive, tmp_path, "there is more data behind its end")


def test_a_file_where_a_folder_should_be_is_damage(tmp_path):
    archive = write_tar(tmp_path / "a.tar", {"x": b"1", "x/1.png": b"2"})
    refuses(archive, tmp_path, "is damaged")


def test_a_missing_archive_is_named(tmp_path):
    with pytest.raises(DataError, match=r"there is no archive .*nothing\.zip"):
        unpack(tmp_path / "nothing.zip", tmp_path / "out")


def test_an_error_of_the_system_is_not_called_damage(tmp_path, monkeypatch):
    archive = write(tmp_path, ".zip")

    def full(*args):
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr(_archives.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        unpack(archive, tmp_path / "out")


def _read(path, *, max_files=10, max_bytes=1 << 20):
    return dict(read_zip(path.read_bytes(), name="a.zip", max_files=max_files, max_bytes=max_bytes))


def test_a_zip_is_read_in_memory_within_limits(tmp_path):
    archive = write(tmp_path, ".zip")
    assert _read(archive, max_files=3, max_bytes=3003) == FILES
    with pytest.raises(DataError, match=r"a\.zip is refused: it has more than 2 files"):
        _read(archive, max_files=2)
    with pytest.raises(DataError, match=r"a\.zip is refused: .* unpacks to more than 3,002 bytes"):
        _read(archive, max_bytes=3002)
    assert sorted(tmp_path.rglob("*")) == [archive]


@pytest.mark.parametrize("name", ["../a.png", "/a.png", "a/../../b.png", "C:/a.png", "..\\a.png"])
def test_a_path_that_leads_outside_is_not_read(tmp_path, name):
    with pytest.raises(DataError, match="outside the target folder"):
        _read(write_zip(tmp_path / "a.zip", {name: b"1"}))


def test_a_link_is_not_read(tmp_path):
    archive = write_zip(tmp_path / "a.zip", FILES, extra=[zip_link("data/c.png", "a/1.png")])
    with pytest.raises(DataError, match=r"its member 'data/c\.png' is a link"):
        _read(archive)


def test_a_damaged_zip_is_not_read(tmp_path):
    archive = write(tmp_path, ".zip")
    content = bytearray(archive.read_bytes())
    middle = len(content) // 2
    content[middle] ^= 255
    archive.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.zip is damaged"):
        _read(archive)
