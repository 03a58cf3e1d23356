"""Downloads from an unreliable local server."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from alfa.data import _download
from alfa.data._download import download, fetch
from alfa.data.sources import CUB, SOURCES, RemoteFile
from alfa.errors import DataError

CONTENT = np.random.default_rng(0).bytes(300_000)
WAITS = (0.0, 0.0, 0.0)


class Server:
    """The behavior of the server, and the ranges that clients requested."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.ranges = True
        self.length = True
        self.close_after: list[int] = []
        self.statuses: list[int] = []
        self.asked: list[str | None] = []
        self.url = ""


@pytest.fixture(autouse=True)
def _no_proxy_and_no_waits(monkeypatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(_download, "_WAITS", WAITS)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.asked.append(wanted)
            if state.statuses:
                self.send_error(state.statuses.pop(0))
                return
            begin = 0
            if wanted and state.ranges:
                begin = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
                if begin >= len(state.content):
                    self.send_error(416)
                    return
                self.send_response(206)
                last = len(state.content) - 1
                self.send_header("Content-Range", f"bytes {begin}-{last}/{last + 1}")
            else:
                self.send_response(200)
            body = state.content[begin:]
            if state.length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.close_after.pop(0)] if state.close_after else body)

        def log_message(self, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_address[1]}/file.zip"
    yield state
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture
def file(server: Server) -> RemoteFile:
    checksum = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    return RemoteFile(server.url, "file.zip", len(CONTENT), checksum, "https://example.org/page")


def test_a_file_is_downloaded(server: Server, file, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    path = fetch(file, tmp_path / "new", on_progress=lambda *numbers: told.append(numbers))
    assert path == tmp_path / "new" / "file.zip"
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in path.parent.iterdir()] == ["file.zip"]
    assert server.asked == [None]
    assert told[0] == ("file.zip", 0, 300_000)
    assert told[-1] == ("file.zip", 300_000, 300_000)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_other_kinds_of_checksums_are_known(server: Server, tmp_path: Path) -> None:
    checksum = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
    file = RemoteFile(server.url, "file.zip", len(CONTENT), checksum, "")
    assert fetch(file, tmp_path).read_bytes() == CONTENT


def test_a_cut_connection_is_gone_on_with(server: Server, file, tmp_path: Path) -> None:
    server.close_after = [100_000, 50_000]
    told: list[int] = []
    path = fetch(file, tmp_path, on_progress=lambda _, done, total: told.append(done))
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]
    assert told == sorted(told)
    assert told[-1] == 300_000


def test_another_run_goes_on_where_one_was_stopped(server: Server, file, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(CONTENT[:250_000])
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=250000-"]
    assert not (tmp_path / "file.zip.part").exists()


def test_a_part_that_is_complete_is_only_compared(server: Server, file, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(CONTENT)
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert server.asked == []


def test_a_part_that_is_too_long_is_thrown_away(server: Server, file, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(CONTENT + b"more")
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=300004-", None]


def test_a_server_without_ranges_sends_everything_again(
    server: Server, file, tmp_path: Path
) -> None:
    server.ranges = False
    server.close_after = [100_000]
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-"]


def test_a_server_that_never_comes_further_is_given_up(server, file, tmp_path: Path) -> None:
    server.ranges = False
    server.close_after = [1000] * 10
    told = r"lost after 1,000 of 300,000 bytes; 1,000 bytes are saved in .*file\.zip\.part, run"
    with pytest.raises(DataError, match=told):
        fetch(file, tmp_path)
    assert len(server.asked) == 1 + len(WAITS)


def test_new_bytes_reset_the_count_of_attempts(server, file, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(_download, "_WAITS", (0.0,))
    server.close_after = [20_000] * 15
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert len(server.asked) == 15


def test_a_server_that_is_busy_is_asked_again(server: Server, file, tmp_path: Path) -> None:
    server.statuses = [503, 429]
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    server.statuses = [500] * 10
    (tmp_path / "file.zip").unlink()
    with pytest.raises(DataError, match=r"the server answered 500 \(Internal Server Error\)"):
        fetch(file, tmp_path)


def test_the_length_may_be_unknown(server: Server, file, tmp_path: Path) -> None:
    server.length = False
    told: list[int | None] = []
    path = fetch(file, tmp_path, on_progress=lambda _, done, total: told.append(total))
    assert path.read_bytes() == CONTENT
    assert set(told) == {None}


def test_a_wrong_checksum_is_told_and_the_file_kept_aside(server, file, tmp_path: Path) -> None:
    server.content = CONTENT[:-1] + b"x"
    with pytest.raises(DataError) as caught:
        fetch(file, tmp_path)
    found, expected = (hashlib.sha256(c).hexdigest() for c in (server.content, CONTENT))
    assert str(caught.value) == (
        f"the sha256 of file.zip must be {expected}, got {found}; the file was renamed to "
        f"{tmp_path / 'file.zip.bad'}; download it again."
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.zip.bad"]
    server.content = CONTENT
    assert fetch(file, tmp_path).read_bytes() == CONTENT


def test_a_file_that_is_there_is_compared_and_left(server: Server, file, tmp_path: Path) -> None:
    (tmp_path / "file.zip").write_bytes(CONTENT)
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    (tmp_path / "file.zip").write_bytes(b"mine")
    with pytest.raises(DataError, match="move the file away and try again"):
        fetch(file, tmp_path)
    assert (tmp_path / "file.zip").read_bytes() == b"mine"
    assert server.asked == []


@pytest.mark.parametrize(("status", "reason"), [(404, "Not Found"), (403, "Forbidden")])
def test_a_file_that_is_gone_is_told_at_once(
    server: Server, file, tmp_path: Path, status: int, reason: str
) -> None:
    server.statuses = [status] * 10
    with pytest.raises(DataError) as caught:
        fetch(file, tmp_path)
    assert str(caught.value) == (
        f"{server.url} cannot be downloaded: the server answered {status} ({reason}) (the authors "
        "of alfa have not tested this address); see https://example.org/page for the current "
        "address of file.zip."
    )
    assert len(server.asked) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def nowhere() -> RemoteFile:
    """A file behind a closed port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file.zip"
    return RemoteFile(url, "file.zip", 10, "md5:0", "https://example.org")


def test_a_server_that_is_not_there_is_told_at_once(nowhere, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be reached \(.*refused\).* see https://example"):
        fetch(nowhere, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_is_not_known_is_told_at_once(nowhere, tmp_path: Path, monkeypatch) -> None:
    def unknown(*args: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(DataError, match=r"cannot be reached \(.*Name or service not known\)"):
        fetch(nowhere, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_is_gone_in_between_is_waited_for(nowhere, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(b"12345")
    with pytest.raises(DataError, match=r"5 bytes are saved in .* run the command again to resume"):
        fetch(nowhere, tmp_path)
    assert (tmp_path / "file.zip.part").read_bytes() == b"12345"


def test_a_folder_that_cannot_be_written_is_told(server: Server, file, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file\.zip could not be written to .*: (Not a dir|File)"):
        fetch(file, tmp_path / "file")


# --- the table


def test_a_dataset_may_have_several_files(server, file, tmp_path: Path, monkeypatch) -> None:
    second = RemoteFile(server.url, "second.zip", file.num_bytes, file.checksum, "")
    monkeypatch.setattr(CUB, "downloads", (file, second))
    assert [path.name for path in download("cub", tmp_path)] == ["file.zip", "second.zip"]


def test_what_must_be_fetched_by_hand_is_told(tmp_path: Path) -> None:
    manuals = {name: SOURCES.get(name).manual_download for name in SOURCES}
    manuals = {name: manual for name, manual in manuals.items() if manual is not None}
    assert len(manuals) == 10
    for name, manual in manuals.items():
        with pytest.raises(DataError) as caught:
            download(name, tmp_path)
        assert str(caught.value) == (
            f"{name} must be downloaded manually: {manual.reason}. Download {manual.files} from "
            f"{manual.page}, {manual.steps}put it into {tmp_path}, and run `alfa data prepare "
            f"{name}`."
        )


def test_what_has_no_address_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="folder has no files to download; alfa can download"):
        download("folder", tmp_path)


def test_every_address_is_complete() -> None:
    lengths = {"md5": 32, "sha256": 64}
    sources = [SOURCES.get(name) for name in SOURCES]
    assert sum(bool(source.downloads) for source in sources) == 8
    for source in sources:
        assert not (source.downloads and source.manual_download)
        for file in source.downloads:
            kind, _, digest = file.checksum.partition(":")
            assert re.fullmatch(f"[0-9a-f]{{{lengths[kind]}}}", digest)
            assert file.url.startswith("https://")
            assert file.url.endswith(f"/{file.name}")
            assert file.page.startswith("https://")
            assert file.num_bytes > 1_000_000


@pytest.mark.skipif(os.name != "posix", reason="requires POSIX locks")
def test_two_do_not_download_the_same_file(server: Server, file, tmp_path: Path) -> None:
    def begin_another(name: str, done: int, total: int | None) -> None:
        with pytest.raises(DataError, match=r"another process is downloading file\.zip"):
            fetch(file, tmp_path)

    assert fetch(file, tmp_path, on_progress=begin_another).read_bytes() == CONTENT
    assert server.asked == [None]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.zip"]
