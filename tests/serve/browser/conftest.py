"""A visitor of the page in Chromium."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

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
# The browser reports answers with a problem as errors of the console.
_PROBLEM_ANSWER = r"the server responded with a status of 4(09|15|22)"
_RECORD_VIOLATIONS = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""
# Returns texts with less contrast than the 4.5 of WCAG's level AA, or 3 for large text. Colors are
# converted by a canvas, which knows all of their notations.
_LOW_CONTRAST = """() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (color) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const luminance = (color) => {
    const [r, g, b] = color.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = ([r, g, b, a], back) => [r, g, b].map((value, n) => a * value + (1 - a) * back[n]);
  const backOf = (element) => {
    if (!element) return [255, 255, 255];
    const color = parse(getComputedStyle(element).backgroundColor);
    return color[3] === 1 ? color.slice(0, 3) : over(color, backOf(element.parentElement));
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const [node, element] = [walker.currentNode, walker.currentNode.parentElement];
    const isExempt = element.closest(":disabled, .mark, .unseen, [aria-hidden], option");
    if (!node.data.trim() || isExempt || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const back = backOf(element);
    const pair = [luminance(over(parse(style.color), back)), luminance(back)].sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    const isLarge = parseFloat(style.fontSize) >= 24;
    if (contrast < (isLarge ? 3 : 4.5)) found.push(`${contrast.toFixed(2)} ${node.data.trim()}`);
  }
  return found;
}"""
_UNNAMED = """() => [...document.querySelectorAll("button, input, select, canvas, video, dialog")]
  .filter((each) => each.checkVisibility() && !(each.textContent.trim() && each.matches("button")))
  .filter((each) => !each.ariaLabel && !each.ariaLabelledByElements?.length && !each.labels?.length)
  .map((each) => each.outerHTML)"""


@dataclass
class Visit:
    """A browser tab, the address of the page, its requests, and its console errors."""

    page: Any
    address: str
    scheme: str
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, context: Any, address: str, scheme: str) -> Visit:
        context.set_default_timeout(10_000)
        context.add_init_script(_RECORD_VIOLATIONS)
        visit = cls(context.new_page(), address, scheme)
        visit.page.on("request", lambda request: visit.requests.append(request.url))
        visit.page.on("pageerror", lambda error: visit.errors.append(str(error)))
        visit.page.on("console", lambda message: visit._on_console(message))
        visit.page.goto(address)
        visit.page.locator("body.is-ready").wait_for()
        return visit

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.text} {message.location['url']}")

    @property
    def is_phone(self) -> bool:
        return bool(self.page.viewport_size["width"] < 500)

    def reload(self) -> None:
        self.page.reload()
        self.page.locator("body.is-ready").wait_for()

    def expect(self, selector: str) -> Any:
        from playwright.sync_api import expect

        return expect(self.page.locator(selector))

    def wait(self, selector: str, text: str) -> None:
        self.page.locator(selector).filter(has_text=text).first.wait_for(state="attached")

    def click(self, selector: str) -> None:
        self.page.locator(selector).click()

    def fill(self, selector: str, text: str) -> None:
        self.page.locator(selector).fill(text)

    def press(self, selector: str, key: str) -> None:
        self.page.locator(selector).press(key)

    def count(self, selector: str) -> int:
        return int(self.page.locator(selector).count())

    def text(self, selector: str, attribute: str | None = None) -> str:
        found = self.page.locator(selector).first
        return str(found.get_attribute(attribute) if attribute else found.inner_text())

    def names(self) -> list[str]:
        return [box.input_value() for box in self.page.locator(".class .name").all()]

    def rename(self, place: int, name: str) -> None:
        box = self.page.locator(".class .name").nth(place)
        box.fill(name)
        box.press("Enter")

    def upload(self, where: str, *files: Path) -> None:
        self.page.locator(f"{where} .drop input").set_input_files(list(files))

    def download(self, selector: str) -> Any:
        with self.page.expect_download() as coming:
            self.click(selector)
        return coming.value

    @contextmanager
    def held(self, urls: str) -> Iterator[None]:
        """Hold the requests of a block back until its end."""
        routes: list[Any] = []
        self.page.route(urls, lambda route: routes.append(route))
        yield
        for route in routes:
            route.continue_()
        self.page.unroute(urls)

    def draw(self, where: str, way: list[tuple[float, float]]) -> None:
        canvas = self.page.locator(f"{where} canvas")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in way]
        self.page.mouse.move(*places[0])
        self.page.mouse.down()
        for place in places[1:]:
            self.page.mouse.move(*place, steps=3)
        self.page.mouse.up()

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

    def check_terms(self) -> None:
        """Open the explanation of each visible term; it must fit on the screen."""
        words = self.page.locator("[popovertarget]:visible").all()
        assert len(words) >= 6
        for word in words:
            word.click()
            shown = self.page.locator(".definition:popover-open")
            assert shown.locator("dfn").inner_text()
            box, size = shown.bounding_box(), self.page.viewport_size
            assert box["x"] >= 0
            assert box["y"] >= 0
            assert box["x"] + box["width"] <= size["width"]
            assert box["y"] + box["height"] <= size["height"]
            self.page.keyboard.press("Escape")
            self.expect(".definition:popover-open").to_have_count(0)

    def check_looks(self) -> None:
        """Check names of controls, the contrast in both color schemes, and the page's width."""
        assert self.page.evaluate(_UNNAMED) == []
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            assert self.page.evaluate(_LOW_CONTRAST) == []
        self.page.emulate_media(color_scheme=self.scheme)
        # The page has no horizontal scroll bar.
        assert self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    def check(self, *, expected_errors: str = _PROBLEM_ANSWER) -> None:
        """Check that the page is accessible, and that it sent requests to the server only."""
        host = self.address.split("/")[2]
        urls = [url for url in self.requests if not url.startswith(("data:", "blob:"))]
        assert {url.split("/")[2] for url in urls} == {host}
        unexpected = f"{expected_errors}|{_PROBLEM_ANSWER}"
        assert [error for error in self.errors if not re.search(unexpected, error)] == []
        assert self.page.evaluate("window.violations") == []
        self.check_looks()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    reason = "the tests of the page need playwright and chromium"
    playwright = pytest.importorskip("playwright.sync_api", reason=reason)
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip(reason)
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any, photo_server: Any) -> Iterator[Callable[..., Visit]]:
    contexts = []

    def start(width: int, scheme: str = "light") -> Visit:
        is_phone = width < 500
        context = browser.new_context(
            viewport={"width": width, "height": 844 if is_phone else 900},
            color_scheme=scheme,
            is_mobile=is_phone,
            has_touch=is_phone,
        )
        contexts.append(context)
        return Visit.start(context, photo_server.login, scheme)

    yield start
    for context in contexts:
        context.close()
