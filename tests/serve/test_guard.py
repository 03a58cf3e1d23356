"""Attacks on the server, and its limits of requests."""

from __future__ import annotations

import io
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from PIL import Image

import alfa.serve
from alfa.errors import ConfigError
from alfa.serve import create_app, serving
from alfa.serve._limits import Limits
from alfa.serve._server import is_loopback

TOKEN = "0123456789abcdef"
Files = list[list[bytes]]


def ask(server: Any, path: str = "/api/v1/health", **headers: str) -> Any:
    return httpx.get(server.address + path, headers=headers, trust_env=False)


@pytest.fixture(scope="module")
def impatient(run: Path) -> Iterator[Any]:
    """A server with short time limits."""
    limits = Limits(
        header_seconds=0.3, silent_seconds=0.3, upload_seconds=1, request_bytes=200_000, uploads=2
    )
    with serving(run, limits=limits) as running:
        yield running


def connect(server: Any) -> socket.socket:
    host, _, port = server.address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:7860",
        "127.0.0.1.evil.example",
        "evil.example@127.0.0.1",
        "[",
        "localhost:",
        "127.0.0.1:x",
        "localhost.",
    ],
)
def test_other_hosts_are_refused(server: Any, host: str) -> None:
    answer = ask(server, host=host)
    assert (answer.status_code, answer.json()["code"]) == (403, "host-not-allowed")


def test_a_request_without_a_host_is_refused(server: Any) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 403")


def test_addresses_and_own_names_are_hosts(server: Any) -> None:
    port = server.address.rpartition(":")[2]
    # An attack by DNS rebinding needs a name.
    for host in (f"127.0.0.1:{port}", f"LOCALHOST:{port}", "[::1]", "192.168.0.2", "[fe80::1]:1"):
        assert ask(server, host=host).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1", ""]
)
def test_other_origins_are_refused(server: Any, origin: str) -> None:
    answer = ask(server, origin=origin)
    assert (answer.status_code, answer.json()["code"]) == (403, "origin-not-allowed")
    assert ask(server, origin=server.address).status_code == 200
    # A proxy may add TLS.
    assert ask(server, origin=server.address.replace("http:", "https:")).status_code == 200


def test_responses_have_security_headers(server: Any) -> None:
    for path in ("/", "/docs", "/api/v1/health", "/nothing"):
        headers = ask(server, path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "camera=(self)" in headers["permissions-policy"]
        assert "server" not in headers
    # Errors of the guard, too.
    assert "content-security-policy" in ask(server, host="evil.example").headers


@pytest.mark.parametrize(
    "path",
    [
        "/static/../_guard.py",
        "/static/%2e%2e/_guard.py",
        "/static/..%2f_guard.py",
        "/static/..%5c_guard.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/docs/../../_guard.py",
        "/docs/%00",
        "/../../../../etc/passwd",
        "/etc/passwd",
        "/api/v1/sessions/..%2f..%2f..%2fetc",
    ],
)
def test_paths_outside_the_page_are_not_found(server: Any, path: str) -> None:
    with connect(server) as connection:
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"import" not in answer
    assert b"root:" not in answer


def test_files_of_the_page_have_types_and_are_not_sent_twice(server: Any) -> None:
    assert ask(server, "/").headers["content-type"] == "text/html; charset=utf-8"
    folder = Path(alfa.serve.__file__).parent / "static"
    scripts = sorted(folder.rglob("*.js"))
    assert scripts
    for path in scripts:
        answer = ask(server, f"/static/{path.relative_to(folder).as_posix()}")
        assert answer.headers["content-type"].endswith("/javascript; charset=utf-8")
        assert answer.headers["cache-control"] == "no-cache"
        again = ask(server, answer.url.path, **{"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_the_documentation_is_served_from_here(server: Any) -> None:
    page = ask(server, "/docs").text
    sources = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(sources) == 4
    for source in sources:
        assert ask(server, f"/{source}").status_code == 200
    document = ask(server, "/openapi.json").json()
    problem = document["paths"]["/api/v1/sessions"]["post"]["responses"]["422"]
    assert list(problem["content"]) == ["application/problem+json"]
    assert "HTTPValidationError" not in repr(document["paths"])
    body = document["paths"]["/api/v1/sessions/{session_id}/unlabeled"]["post"]["requestBody"]
    assert list(body["content"]) == ["multipart/form-data"]


def test_large_bodies_are_refused(
    impatient: Any, server: Any, open_client: Callable[..., Any]
) -> None:
    client = open_client(impatient.address)
    answer = client.send("/unlabeled", bytes(300_000), status=413)
    assert answer["code"] == "too-large"

    def parts() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
        for _ in range(30):
            yield bytes(10_000)

    # A client that declares no size.
    headers = {"content-type": "multipart/form-data; boundary=x"}
    answer = client.web.post(f"{client.path}/unlabeled", content=parts(), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
    other = open_client(server.address)
    answer = other.web.post(
        f"{other.path}/classes", content=bytes(2 << 20), headers={"content-type": "text/plain"}
    )
    assert answer.status_code == 413
    for length in ("-5", "x", "1e3"):
        with connect(server) as connection:
            lines = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
            connection.sendall(lines.encode())
            assert read_all(connection).startswith(b"HTTP/1.1 400")


def test_half_sent_headers_end_the_connection(impatient: Any) -> None:
    begin = time.monotonic()
    with connect(impatient) as silent, connect(impatient) as slow:
        silent.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        # Further parts do not reset the time limit.
        for number in range(20):
            time.sleep(0.05)
            try:
                slow.sendall(b"GET / HTTP/1.1\r\n" if number == 0 else b"X-More: 1\r\n")
            except (BrokenPipeError, ConnectionResetError):
                break
        assert read_all(silent) == read_all(slow) == b""
    assert time.monotonic() - begin < 5
    # A connection between two requests is closed, too; one during a long response is not.
    with connect(impatient) as kept:
        kept.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_all(kept).startswith(b"HTTP/1.1 200")


def test_a_connection_lives_while_requests_are_complete(impatient: Any) -> None:
    with (
        httpx.Client(base_url=impatient.address, trust_env=False) as web,
        connect(impatient) as own,
    ):
        for _ in range(4):
            time.sleep(0.1)
            request = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
            own.sendall(request)
            answer = own.recv(65536)
            while b"num_sessions" not in answer:
                answer += own.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
            assert web.get("/api/v1/health").status_code == 200


def test_responses_do_not_wait_for_acknowledgments(server: Any) -> None:
    seconds = []
    with connect(server) as own:
        for _ in range(20):
            begin = time.perf_counter()
            own.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while b"num_sessions" not in answer:
                answer += own.recv(65536)
            seconds.append(time.perf_counter() - begin)
    # A delayed acknowledgment takes 40 ms.
    assert sorted(seconds)[10] < 0.03


def upload_head(path: str, length: int) -> bytes:
    lines = (
        f"POST /api/v1{path}/unlabeled HTTP/1.1",
        "Host: localhost",
        "Content-Type: multipart/form-data; boundary=x",
        f"Content-Length: {length}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def test_slow_uploads_end_and_do_not_block_others(
    impatient: Any, files: Files, open_client: Callable[..., Any]
) -> None:
    victim, attacker = open_client(impatient.address), open_client(impatient.address)
    silent = [connect(impatient) for _ in range(8)]
    for connection in silent:
        connection.sendall(upload_head(attacker.path, 1000) + b"--x")
    # Eight silent uploads of one session do not delay another one.
    begin = time.monotonic()
    assert len(victim.send("/unlabeled", files[0][0])["added"]) == 1
    assert time.monotonic() - begin < 2
    answers = [read_all(connection) for connection in silent]
    for connection in silent:
        connection.close()
    # The session may have two uploads at a time.
    statuses = sorted(int(answer.split()[1]) for answer in answers)
    assert statuses == [408, 408, *[429] * 6]
    assert all(b"Retry-After" in a or b"retry-after" in a for a in answers if b" 429 " in a)
    assert len(attacker.send("/unlabeled", files[0][0])["added"]) == 1


def test_a_dripping_upload_ends(impatient: Any, open_client: Callable[..., Any]) -> None:
    client = open_client(impatient.address)
    begin = time.monotonic()
    with connect(impatient) as connection:
        connection.sendall(upload_head(client.path, 100_000) + b"--x\r\n")
        for _ in range(40):
            time.sleep(0.1)
            try:
                connection.sendall(b"a")
            except (BrokenPipeError, ConnectionResetError):
                break
        assert b" 408 " in read_all(connection)
    assert 0.9 < time.monotonic() - begin < 5


def png_bomb(mode: str) -> bytes:
    """Return a small PNG of one color with 8000 x 8000 pixels."""
    buffer = io.BytesIO()
    Image.new(mode, (8000, 8000), "olive").save(buffer, "PNG")
    return buffer.getvalue()


def resident() -> int:
    """Return the memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_ten_image_bombs_need_little_memory(
    photo_server: Any, open_client: Callable[..., Any]
) -> None:
    """Ten clients send 8000 x 8000 pixels of one color at the same time."""
    bombs = [png_bomb("RGB")] * 9 + [png_bomb("RGBA")]
    assert max(map(len, bombs)) < 300_000
    clients = [open_client(photo_server.address) for _ in range(10)]
    before, peak, stop = resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not stop.wait(0.005):
            peak = max(peak, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda own, bomb: own.send("/unlabeled", bomb), clients, bombs))
    finally:
        stop.set()
        watcher.join()
    assert peak - before < 500 * 10**6
    for answer in answers:
        [photo] = answer["session"]["unlabeled"]
        assert (photo["width"], answer["refused"]) == (8000, [])


def test_wide_formats_have_a_lower_limit(client: Any) -> None:
    buffer = io.BytesIO()
    Image.new("L", (8000, 4000)).save(buffer, "JPEG2000", irreversible=True)
    [refused] = client.send("/unlabeled", buffer.getvalue())["refused"]
    assert "8,000 x 4,000 pixels, more than 30,000,000" in refused["detail"]


def test_the_server_opens_no_connection_and_no_file(
    photo_server: Any,
    open_client: Callable[..., Any],
    photos: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Any] = []
    connect = socket.socket.connect

    def record(self: socket.socket, address: Any) -> None:
        found.append(address)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", record)
    # No temporary file can be created.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    client = open_client(photo_server.address)
    client.teach([own[:3] for own in photos])
    client.call("POST", "/learn")
    # Decoders ignore bytes after the end of a photo.
    large = photos[0][0] + bytes(4 << 20)
    assert client.send("/predict", large, status=200)["refused"] == []
    for kind in ("examples", "run"):
        assert client.web.get(f"{client.path}/export?format={kind}").status_code == 200
    # The client runs in this process, too.
    port = int(photo_server.address.rpartition(":")[2])
    assert set(found) == {("127.0.0.1", port)}


def test_other_addresses_need_a_token(run: Path) -> None:
    with pytest.raises(ConfigError, match=r"`token` is required for the host 0\.0\.0\.0"):
        serving(run, host="0.0.0.0").__enter__()
    for token in ("short", "with space 0123456", "ümläut-0123456789"):
        with pytest.raises(ConfigError, match="`token` must have at least 16"):
            create_app(run, token=token)
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "10.0.0.1", "x")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_requests_need_the_token(run: Path) -> None:
    with serving(run, host="0.0.0.0", token=TOKEN) as server:
        port = server.address.rpartition(":")[2]
        # A name that other computers may know.
        assert server.address == f"http://{socket.gethostname()}:{port}"
        assert server.login == f"{server.address}/?token={TOKEN}"
        address = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=address, trust_env=False) as web:
            for path in ("/", "/api/v1/health", "/static/page.css", "/docs", "/?token=wrong"):
                answer = web.get(path)
                assert (answer.status_code, answer.json()["code"]) == (401, "no-token")
                assert answer.headers["www-authenticate"] == "Bearer"
            for given in (f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer ü", "Bearer"):
                headers = {"authorization": given.encode()}
                assert web.get("/api/v1/health", headers=headers).status_code == 401
            headers = {"authorization": f"Bearer {TOKEN}"}
            assert web.get("/api/v1/health", headers=headers).status_code == 200
            # A token in the address is accepted for the page only, and moves to a cookie.
            assert web.get(f"/api/v1/health?token={TOKEN}").status_code == 401
            answer = web.get(f"/?token={TOKEN}")
            assert (answer.status_code, answer.headers["location"]) == (303, "./")
            cookie = answer.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=strict" in cookie
            assert web.get("/").status_code == 200
            assert web.get("/api/v1/health").status_code == 200


def test_the_application_can_be_mounted(run: Path, files: Files) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount
    from starlette.testclient import TestClient
    from starlette.websockets import WebSocketDisconnect

    outer = Starlette(routes=[Mount("/tools/classify", create_app(run, token=TOKEN))])
    with TestClient(outer, base_url="http://localhost", follow_redirects=False) as web:
        assert web.get(f"/tools/classify/?token={TOKEN}").headers["location"] == "./"
        assert web.get("/tools/classify/").status_code == 200
        assert web.get("/tools/classify/static/page.css").status_code == 200
        assert web.get("/tools/classify/docs/start.js").status_code == 200
        answer = web.post("/tools/classify/api/v1/sessions")
        location = answer.headers["location"]
        assert location.startswith("/tools/classify/api/v1/sessions/")
        parts = [("files", ("a.png", content)) for content in files[0]]
        assert len(web.post(f"{location}/unlabeled", files=parts).json()["added"]) == 5
        document = web.get("/tools/classify/openapi.json").json()
        assert document["servers"] == [{"url": "/tools/classify"}]
        with pytest.raises(WebSocketDisconnect) as caught:
            web.websocket_connect("/tools/classify/api/v1/health").__enter__()
        assert caught.value.code == 1008
