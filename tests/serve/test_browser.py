"""The page in a browser; no request leaves the computer."""

from __future__ import annotations

import os
import shutil
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from alfa.serve import Server

playwright = pytest.importorskip("playwright.sync_api", reason="these tests need playwright")
pytest.importorskip("gradio", reason="the page needs gradio: pip install 'alfa[serve]'")
_CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(_CHROMIUM is None, reason="there is no chromium on this machine")

_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
)
RING = [(0.3, 0.3), (0.7, 0.3), (0.7, 0.7), (0.3, 0.7), (0.3, 0.3)]
SLASH = [(0.25, 0.75), (0.75, 0.25)]


@dataclass(frozen=True)
class Visit:
    """A browser tab, its requests, and its console errors and warnings."""

    page: Any
    requests: list[str]
    errors: list[str]

    def do(self, what: str, *, within: str) -> None:
        self.page.locator(f"{within} [data-do={what}]").first.click()

    def names(self) -> list[str]:
        return [box.input_value() for box in self.page.locator(".alfa-name").all()]

    def rename(self, place: int, name: str) -> None:
        box = self.page.locator(".alfa-name").nth(place)
        box.fill(name)
        box.press("Enter")

    def pick(self, place: int) -> None:
        self.page.locator(".alfa-class").nth(place).locator("[data-do=pick]").click()
        self.page.locator(f".alfa-class:nth-of-type({place + 1}).is-picked").wait_for()

    def draw(self, pad: str, way: list[tuple[float, float]]) -> None:
        canvas = self.page.locator(f"#{pad} canvas")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in way]
        self.page.mouse.move(*places[0])
        self.page.mouse.down()
        for place in places[1:]:
            self.page.mouse.move(*place, steps=3)
        self.page.mouse.up()

    def give(self, where: str, *files: Path) -> None:
        self.page.locator(f"#{where} input").set_input_files(list(files))

    def drop(self, where: str, *files: Path) -> None:
        """Drop files or folders, as from a file manager."""
        place = self.page.locator(where).first
        place.scroll_into_view_if_needed()
        box = place.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        browser = self.page.context.new_cdp_session(self.page)
        for kind in ("dragEnter", "dragOver", "drop"):
            browser.send("Input.dispatchDragEvent", {"type": kind, "x": x, "y": y, "data": data})

    def wait(self, selector: str, text: str) -> None:
        self.page.locator(selector).filter(has_text=text).first.wait_for()

    def wait_for_pictures(self, count: int) -> None:
        playwright.expect(self.page.locator(".alfa-thumb")).to_have_count(count)

    def check(self) -> None:
        hosts = {url.split("/")[2].split(":")[0] for url in self.requests if url.startswith("http")}
        assert hosts == {"127.0.0.1"}
        assert not [url for url in self.requests if not url.startswith(("http:", "data:", "blob:"))]
        assert self.errors == []
        # The page has no horizontal scroll bar.
        assert self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=_CHROMIUM, args=list(_ARGUMENTS))
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any, served: Server) -> Iterator[Callable[..., Visit]]:
    contexts = []

    def start(**options: Any) -> Visit:
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(20_000)
        page = context.new_page()
        visitor = Visit(page, [], [])
        page.on("request", lambda request: visitor.requests.append(request.url))
        page.on("pageerror", lambda error: visitor.errors.append(str(error)))
        page.on(
            "console",
            lambda message: (
                visitor.errors.append(message.text)
                if message.type in ("error", "warning")
                else None
            ),
        )
        page.goto(served.address)
        page.locator(".alfa-class").first.wait_for()
        return visitor

    yield start
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def files(pictures: list[list[bytes]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for number, each in enumerate(pictures):
        for place, content in enumerate(each):
            (folder / f"{number}-{place}.png").write_bytes(content)
    (folder / "notes.txt").write_text("not a picture")
    return folder


def test_a_user_teaches_with_pictures(
    visit: Callable[..., Visit], served: Server, files: Path, tmp_path: Path
) -> None:
    me = visit(viewport={"width": 1280, "height": 900})
    other = visit(viewport={"width": 800, "height": 600}, color_scheme="dark")
    me.do("add", within="#classes")
    me.page.locator(".alfa-class").nth(2).wait_for()
    # The keyboard focus moves to the new class.
    playwright.expect(me.page.locator(".alfa-name").nth(2)).to_be_focused()
    for place, name in enumerate(("alef", "bet", "gimel & co")):
        me.rename(place, name)
        # Wait for the server's answer, which contains the name as an attribute.
        me.page.locator(f'.alfa-name[value="{name}"]').wait_for()
    me.wait("#target", "gimel & co")
    me.rename(0, "bet")
    me.wait("#teach-notice", "The class “bet” already exists; choose another name.")
    me.wait(".alfa-unseen", "The class “bet” already exists; choose another name.")
    assert me.names() == ["alef", "bet", "gimel & co"]

    me.page.get_by_role("tab", name="Upload").first.click()
    for place in range(3):
        me.pick(place)
        me.give("teach-drop", *(files / f"{place}-{number}.png" for number in range(4)))
        me.wait_for_pictures(4 * place + 4)
    me.give("teach-drop", files / "notes.txt", files / "2-4.png")
    me.wait("#teach-notice", "“notes.txt” is not an image, or its format is not supported.")
    me.wait("#teach-notice", "Added 1 picture to “gimel & co”.")

    me.page.locator("#learn").click()
    me.wait(".alfa-score", "holding out each of your 13 examples")
    me.wait(".alfa-unseen", "of new pictures right")
    me.wait("#answer", "Show the model a new picture")
    assert me.page.locator(".alfa-bars rect").count() == 6
    me.page.locator("#rates-box button").first.click()
    me.page.locator("#rates polyline").first.wait_for()
    assert me.page.locator("#rates polyline").count() == 20

    me.page.get_by_role("tab", name="Upload").nth(1).click()
    me.give("try-drop", files / "0-5.png")
    me.page.locator(".alfa-odd").nth(2).wait_for()
    names = me.page.locator(".alfa-odd-name").all_inner_texts()
    assert sorted(names) == ["alef", "bet", "gimel & co"]
    me.wait(".alfa-unseen", names[0])
    me.give("try-drop", files / "0-5.png", files / "1-5.png")
    me.page.locator(".alfa-answer").nth(1).wait_for()
    # A new model has no predictions yet.
    me.page.locator("#learn").click()
    me.wait("#answer", "Show the model a new picture")

    with me.page.expect_download() as coming:
        me.do("save", within="#keep")
    saved = tmp_path / "saved.zip"
    coming.value.save_as(saved)
    with zipfile.ZipFile(saved) as archive:
        assert len(archive.namelist()) == 13
    me.do("remove", within=".alfa-class >> nth=2 >>")
    me.wait(".alfa-remove", "Remove?")
    assert len(me.names()) == 3
    me.do("remove", within=".alfa-class >> nth=2 >>")
    playwright.expect(me.page.locator(".alfa-class")).to_have_count(2)
    me.give("keep", files / "notes.txt")
    me.wait("#keep-notice", "notes.txt is damaged or has the wrong type")
    me.give("keep", saved)
    me.wait("#keep-notice", "Loaded 3 classes with 13 pictures.")
    me.wait_for_pictures(13)
    assert me.names() == ["alef", "bet", "gimel & co"]

    # The other user's session is independent.
    other.do("add", within="#classes")
    other.page.locator(".alfa-class").nth(2).wait_for()
    assert other.names() == ["Class 1", "Class 2", "Class 3"]
    me.check()
    other.check()
    # Gradio has left no files.
    assert not list(Path(os.environ["GRADIO_TEMP_DIR"]).rglob("*"))
    before = len(served.sessions)
    me.page.close()
    deadline = time.monotonic() + 10
    while len(served.sessions) >= before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(served.sessions) == before - 1


def test_out_of_order_answers_show_the_later_state(
    visit: Callable[..., Visit], monkeypatch: pytest.MonkeyPatch
) -> None:
    from alfa.serve import _page

    me = visit(viewport={"width": 1280, "height": 900})
    me.do("add", within="#classes")
    me.wait("#target", "Class 3")
    shown, held = _page.Page._show_session, threading.Event()

    def late(self: Any, request: Any, **options: Any) -> list[Any]:
        found = shown(self, request, **options)
        if not held.is_set():
            held.set()
            time.sleep(1)
        return found

    monkeypatch.setattr(_page.Page, "_show_session", late)
    me.rename(0, "alef")
    assert held.wait(20)
    me.rename(2, "gimel")
    me.wait("#target", "gimel")
    # Wait for the delayed first answer.
    me.page.wait_for_timeout(1500)
    assert "gimel" in me.page.locator("#target").inner_text()
    assert me.names() == ["alef", "Class 2", "gimel"]
    me.check()


def test_a_user_draws_on_a_phone(visit: Callable[..., Visit]) -> None:
    me = visit(viewport={"width": 390, "height": 844}, color_scheme="dark", is_mobile=True)
    me.draw("try-pad", RING)
    me.wait("#try-notice", "The model has not learned anything yet; press Learn first.")
    for place, way in enumerate((RING, SLASH)):
        me.pick(place)
        for number in range(2):
            me.draw("teach-pad", [(0.8 * x + 0.05 * number, 0.8 * y) for x, y in way])
            me.do("draw", within="#teach-pad")
            me.wait_for_pictures(2 * place + number + 1)
    me.page.locator(".alfa-thumb").first.click()
    me.wait_for_pictures(3)
    # The browser simulates a camera.
    me.page.get_by_role("tab", name="Camera").first.click()
    me.do("start", within="#teach-camera")
    me.page.locator("#teach-camera .is-on").wait_for()
    me.do("shoot", within="#teach-camera")
    me.wait_for_pictures(4)
    me.do("stop", within="#teach-camera")
    me.page.locator("#learn").click()
    me.wait(".alfa-score", "of new pictures right")
    playwright.expect(me.page.locator("#try-notice .alfa-notice")).to_have_count(0)
    me.do("clear", within="#try-pad")
    me.draw("try-pad", SLASH)
    me.page.locator(".alfa-odd").nth(1).wait_for()
    me.check()


def test_pictures_can_be_dropped_on_classes_and_elsewhere(
    visit: Callable[..., Visit], served: Server, files: Path, tmp_path: Path
) -> None:
    me = visit(viewport={"width": 1280, "height": 900})
    # The browser must not open the file.
    me.drop("h1", files / "0-0.png")
    folder = tmp_path / "folder"
    folder.mkdir()
    me.drop(".alfa-class >> nth=1", folder, files / "1-0.png", files / "1-1.png")
    me.wait("#teach-notice", "Added 2 pictures to “Class 2”.")
    me.wait("#classes .alfa-local", "“folder” cannot be read; is it a folder?")
    me.wait_for_pictures(2)
    assert me.page.url == f"{served.address}/"
    me.check()

    me.page.get_by_role("tab", name="Upload").first.click()
    me.page.route("**/alfa/files*name=0-1*", lambda route: route.abort())
    me.give("teach-drop", files / "0-1.png", files / "0-2.png")
    me.wait("#teach-drop .alfa-local", "“0-1.png” cannot be sent; is the server still running?")
    me.wait_for_pictures(3)
    me.wait("#teach-notice", "Added 1 picture to “Class 1”.")


_WATCH_CAMERAS = """() => {
  const media = navigator.mediaDevices;
  const real = media.getUserMedia.bind(media);
  window.tracks = [];
  media.getUserMedia = async (wanted) => {
    await new Promise((done) => setTimeout(done, 300));
    const stream = await real(wanted);
    window.tracks.push(...stream.getTracks());
    return stream;
  };
}"""
_ALL_OFF = "(count) => tracks.length === count && tracks.every((t) => t.readyState === 'ended')"


def test_hidden_cameras_are_off(visit: Callable[..., Visit]) -> None:
    me = visit(viewport={"width": 1280, "height": 900})
    me.page.evaluate(_WATCH_CAMERAS)
    me.page.get_by_role("tab", name="Camera").first.click()
    # A double click starts the camera once.
    me.page.locator("#teach-camera [data-do=start]").dblclick()
    me.page.locator("#teach-camera .is-on").wait_for()
    me.do("stop", within="#teach-camera")
    me.page.wait_for_function(_ALL_OFF, arg=1)
    # The user leaves the tab while the browser asks for permission.
    me.do("start", within="#teach-camera")
    me.page.get_by_role("tab", name="Upload").first.click()
    me.page.wait_for_function(_ALL_OFF, arg=2)
    me.check()
