"""The page in a browser: every control, in both color schemes, on a screen and on a phone."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

RING = [(0.3, 0.3), (0.7, 0.3), (0.7, 0.7), (0.3, 0.7), (0.3, 0.3)]
ZIGZAG = [(0.2, 0.7), (0.4, 0.3), (0.6, 0.7), (0.8, 0.3)]
COLORS = {"red cup": (190, 60, 50), "green leaf": (60, 170, 70), "blue bag": (60, 80, 190)}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of five noisy photos of one color for each of three classes, and other files."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for name, color in COLORS.items():
        (root / name).mkdir()
        for number in range(6):
            pixels = rng.normal(color, 30, (48, 64, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{name}-{number}.jpg")
    (root / "notes.txt").write_text("not a photo")
    return root


def files_of(photos: Path, name: str) -> list[Path]:
    return sorted((photos / name).iterdir())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_user_teaches_with_photos_and_drawings(
    visit: Callable[..., Any], photos: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    me = visit(width, scheme)
    me.check_looks()
    add_classes(me, photos)
    me.check_looks()
    edit_examples(me, photos)
    learn(me)
    try_photos(me, photos)
    label_next(me, photos)
    me.check_looks()
    save_and_load(me, tmp_path)
    me.reload()
    # The session survives a reload.
    assert me.names() == list(COLORS)
    me.expect("#learned .score").to_be_visible()
    start_over(me, photos)
    draw(me)
    me.check()


def add_classes(me: Any, photos: Path) -> None:
    me.expect("#new-class-problem").to_be_hidden()
    me.click("#learn")
    me.wait("#learn-problem", "at least two classes")
    for name in COLORS:
        me.fill("#new-class-name", name)
        me.press("#new-class-name", "Enter")
        me.expect(f".class[aria-label='Class {name}'].is-target").to_be_visible()
        me.expect("#target").to_have_text(name)
        me.expect("#new-class-name").to_be_focused()
        me.wait("#status", f"Added the class {name}.")
    me.expect("#learn-problem").to_be_hidden()
    me.click("#saves [data-format=onnx]")
    me.wait("#save-problem", "The model has not learned yet; press Learn first.")
    me.fill("#new-class-name", "RED cup")
    me.click("#new-class button")
    me.wait("#new-class-problem", "choose another name")
    me.expect("#new-class-name").to_have_attribute("aria-invalid", "true")
    me.fill("#new-class-name", "")
    me.expect("#new-class-problem").to_be_hidden()

    me.rename(0, "blue bag")
    me.wait(".class >> nth=0 >> .problem", "choose another name")
    assert me.names() == list(COLORS)
    me.rename(0, "cup")
    me.wait("#undo", "Undo") if me.is_phone else me.wait("#undo", "cup")
    me.click("#undo")
    me.expect(".class .name >> nth=0").to_have_value("red cup")

    for place, name in enumerate(COLORS):
        me.click(f".class >> nth={place} >> [data-do=pick]")
        me.expect("#target").to_have_text(name)
        me.upload("#teach-inputs", *files_of(photos, name)[:4])
        me.expect(".thumb").to_have_count(4 * place + 4)
        me.wait("#status", f"Added 4 photos to “{name}”.")
    me.upload("#teach-inputs", photos / "notes.txt", files_of(photos, "blue bag")[4])
    me.wait("#teach-problem", "notes.txt")
    me.expect(".thumb").to_have_count(13)


def edit_examples(me: Any, photos: Path) -> None:
    # Canceling keeps the two photos that are on their way; undo removes all photos of a batch.
    with me.held("**/examples*"):
        me.upload("#teach-inputs", *files_of(photos, "red cup"))
        me.wait("#teach-upload", "Adding photos to “blue bag”: 0 of 6")
        me.expect("#teach-upload progress").to_be_visible()
        me.click("#teach-upload button")
    me.expect("#teach-upload").to_be_hidden()
    me.expect(".thumb").to_have_count(15)
    me.click("#undo")
    me.expect(".thumb").to_have_count(13)
    me.drop(".class >> nth=0", files_of(photos, "red cup")[4])
    me.expect(".class >> nth=0 >> .thumb").to_have_count(5)

    # A copy causes a warning, which opens the viewer.
    me.upload("#teach-inputs", files_of(photos, "blue bag")[0])
    me.expect("#warnings").to_be_visible()
    me.click("#warnings button >> nth=0")
    me.expect("#viewer").to_be_visible()
    me.click("#viewer [data-do=previous]")
    me.click("#viewer [data-do=next]")
    me.page.keyboard.press("ArrowLeft")
    me.page.keyboard.press("ArrowRight")
    me.wait("#viewer-about", "blue bag · 6 of 6")
    me.click("#viewer-classes button >> nth=0")
    me.expect(".class >> nth=0 >> .thumb").to_have_count(6)
    me.wait("#viewer-about", "blue bag · 5 of 5")
    me.click("#viewer [data-do=close]")
    me.expect("#viewer").to_be_hidden()
    me.click(".class >> nth=0 >> .thumb >> nth=5")
    me.click("#viewer [data-do=delete]")
    me.expect(".class >> nth=0 >> .thumb").to_have_count(5)
    me.page.keyboard.press("Escape")
    me.expect("#viewer").to_be_hidden()
    me.expect("#warnings").to_be_hidden()
    me.press(".class >> nth=1 >> .thumb >> nth=3", "Delete")
    me.expect(".class >> nth=1 >> .thumb").to_have_count(3)
    me.press("#learn", "Control+z")
    me.expect(".class >> nth=1 >> .thumb").to_have_count(4)

    me.click(".class >> nth=2 >> [data-do=delete]")
    me.expect(".class").to_have_count(2)
    me.expect("#undo").to_be_focused()
    me.click("#undo")
    me.expect(".class").to_have_count(3)


def learn(me: Any) -> None:
    me.click("#learn")
    me.wait(".score strong", "of new photos right")
    me.wait("#status", "Learned. About")
    # A few examples never prove that all new photos will be right.
    assert "100" not in me.text(".score strong")
    me.wait(".score", "from 14 photos")
    assert re.search(r"between \d+\s% and \d+\s%", me.text(".interval", "aria-label"))
    me.expect(".class-bars li").to_have_count(3)
    me.click("#learned .more:last-child summary")
    me.wait(".facts", "Familiarity below")
    me.check_terms()


# Every photo becomes unfamiliar.
_REJECT_ALL = """() => {
  window.originalFetch = window.fetch;
  window.fetch = async (...request) => {
    const answer = await window.originalFetch(...request);
    const body = await answer.json();
    for (const each of body.predictions) {
      Object.assign(each, { is_none: true, label: null, familiarity: 0.05 });
    }
    return Response.json(body, answer);
  };
}"""


def try_photos(me: Any, photos: Path) -> None:
    first, second = files_of(photos, "red cup")[5], files_of(photos, "green leaf")[5]
    me.upload("#try-inputs", first, second)
    me.expect(".answer .verdict").to_have_count(2)
    me.upload("#try-inputs", second, photos / "notes.txt")
    me.expect(".answer .verdict").to_have_count(1)
    me.wait("#try-problem", "notes.txt")
    me.wait(".familiarity", "the threshold of")
    me.wait("#status", "Prediction:")
    me.expect(".odd").to_have_count(3)
    # The prediction for a photo of something else, with its reason.
    me.page.evaluate(_REJECT_ALL)
    me.upload("#try-inputs", first)
    me.wait(".verdict", "None of these")
    me.wait(".familiarity", "0.05, below the threshold of")
    me.page.evaluate("() => { window.fetch = window.originalFetch; }")
    me.page.locator(".odds select").select_option(label="red cup")
    me.expect(".class >> nth=0 >> .thumb").to_have_count(6)
    me.expect("#learn-note.is-stale").to_be_visible()

    me.click("#try-inputs [data-tab=camera]")
    me.click("#try-inputs [data-do=start]")
    me.click("#try-inputs [data-do=shoot]")
    me.wait(".verdict", "camera-1.jpg")
    me.click("#try-inputs [data-do=stop]")
    me.press("#try-inputs [data-tab=camera]", "ArrowLeft")
    me.expect("#try-inputs .drop").to_be_visible()


def label_next(me: Any, photos: Path) -> None:
    me.expect("#queue").to_be_hidden()
    unlabeled = [file for name in COLORS for file in files_of(photos, name)[4:]]
    me.upload("#label-drop", *unlabeled)
    me.expect("#strip .thumb").to_have_count(6)
    me.wait("#status", "Ranked 6 photos by usefulness.")
    me.click("#rank")
    me.expect("#rank").to_be_enabled()
    me.wait(".candidate-side", "no. 1 by usefulness")
    shown = me.text(".candidate .file")
    me.click(".candidate-side >> text=Skip")
    assert me.text(".candidate .file") != shown
    me.click("#strip .thumb >> nth=0")
    assert me.text(".candidate .file") == shown
    me.click(".choices button >> nth=1")
    me.expect("#strip .thumb").to_have_count(5)
    me.wait("#status", "Labeled as green leaf.")
    me.press(".choices button >> nth=0", "3")
    me.expect("#strip .thumb").to_have_count(4)
    me.wait("#status", "Labeled as blue bag.")
    me.click(".candidate-side >> text=Delete")
    me.expect("#strip .thumb").to_have_count(3)
    assert me.download("#queue [data-format=predictions]").suggested_filename.endswith(".csv")
    # The rest is ranked again after the model has learned.
    me.click("#learn")
    me.wait("#status", "Ranked 3 photos by usefulness.")


def save_and_load(me: Any, tmp_path: Path) -> None:
    count = me.count(".class .thumb")
    saved = tmp_path / "examples.zip"
    me.download("#saves [data-format=examples]").save_as(saved)
    with zipfile.ZipFile(saved) as archive:
        assert len(archive.namelist()) == count
    assert me.download("#saves [data-format=run]").suggested_filename.endswith(".zip")
    # The tests of the server export the model, which takes long.
    headers = {"Content-Disposition": "attachment; filename*=UTF-8''my%20model.onnx"}
    me.page.route("**/export?format=onnx", lambda route: route.fulfill(headers=headers, body="x"))
    assert me.download("#saves [data-format=onnx]").suggested_filename == "my model.onnx"
    me.click(".class >> nth=0 >> [data-do=delete]")
    me.expect(".class").to_have_count(2)
    me.page.locator("#load-file").set_input_files([saved])
    me.wait("#save-note", f"Loaded {count} photos in 3 classes.")
    me.expect(".class .thumb").to_have_count(count)
    me.page.locator("#load-file").set_input_files([__file__])
    me.expect("#save-problem").to_be_visible()
    me.click("#undo")
    me.expect(".class").to_have_count(2)
    me.click("#undo")
    me.expect(".class").to_have_count(3)


_ARE_IMAGES_LOADED = """() => {
  const [session] = Object.values(sessionStorage);
  const images = [...document.querySelectorAll("#queue img")];
  const isLoaded = (image) => image.src.includes(session) && image.naturalWidth > 0;
  return images.length === 2 && images.every(isLoaded);
}"""


def start_over(me: Any, photos: Path) -> None:
    # Until it is confirmed, the button deletes nothing.
    me.click("#restart")
    me.wait("#restart", "Delete everything?")
    me.expect(".class").to_have_count(3)
    me.click("#restart")
    me.expect(".class").to_have_count(0)
    me.expect("#learned .score").to_have_count(0)
    me.expect("#queue").to_be_hidden()
    # The photos of successive sessions have the same numbers, but not the same images.
    for _ in range(2):
        me.upload("#label-drop", files_of(photos, "red cup")[0])
        me.page.wait_for_function(_ARE_IMAGES_LOADED)
        me.click("#restart")
        me.click("#restart")
        me.expect("#queue").to_be_hidden()


def draw(me: Any) -> None:
    me.expect("#teach-inputs [data-tab=pad]").to_be_hidden()
    me.page.locator("#model").select_option("strokes")
    me.wait("h1", "drawings")
    for name, way in {"ring": RING, "zigzag": ZIGZAG}.items():
        me.fill("#new-class-name", name)
        me.press("#new-class-name", "Enter")
        me.expect("#target").to_have_text(name)
        for number in range(2):
            me.draw("#teach-inputs", [(x, y + 0.3 * number * x * y) for x, y in way])
            me.click("#teach-inputs [data-do=add]")
            me.expect(f".class[aria-label='Class {name}'] .thumb").to_have_count(number + 1)
    me.draw("#teach-inputs", RING)
    me.draw("#teach-inputs", ZIGZAG)
    me.click("#teach-inputs [data-do=back]")
    me.click("#teach-inputs [data-do=clear]")
    me.expect("#teach-inputs [data-do=add]").to_be_disabled()
    me.draw("#try-inputs", ZIGZAG)
    me.wait("#try-problem", "press Learn first")
    me.click("#learn")
    me.wait(".score strong", "of new drawings right")
    me.expect("#try-problem").to_be_hidden()
    me.click("#try-inputs [data-do=clear]")
    # The prediction follows every stroke.
    me.draw("#try-inputs", ZIGZAG)
    me.wait(".verdict b", "zigzag")
    me.draw("#try-inputs", RING)
    me.click("#try-inputs [data-do=back]")
    me.wait(".verdict b", "zigzag")
    # A model for photos cannot read drawings.
    me.page.locator("#model").select_option(index=0)
    me.expect("#session-problem").to_be_visible()
    me.expect("#model").to_have_value("strokes")


def test_folders_become_classes_and_sessions_are_independent(
    visit: Callable[..., Any], photos: Path
) -> None:
    me, other = visit(1280), visit(390)
    folders = [photos / name for name in COLORS]
    me.drop("#folder", *folders)
    me.expect(".thumb").to_have_count(18)
    assert sorted(me.names()) == sorted(COLORS)
    # The browser must not open a file that is dropped on another place.
    me.drop("h1", photos / "notes.txt")
    # The file next to the folders of the classes is ignored.
    other.page.locator("#folder input").set_input_files(photos)
    other.expect(".thumb").to_have_count(18)
    other.wait("#status", "Added 18 photos to 3 classes.")
    other.expect("#teach-problem").to_be_hidden()
    other.click(".class >> nth=0 >> [data-do=delete]")
    other.expect(".class").to_have_count(2)
    assert len(me.names()) == 3
    # The page does not poll.
    before = len(me.requests)
    me.page.wait_for_timeout(400)
    assert len(me.requests) == before

    # A session that the server has deleted is replaced by a new one.
    me.page.evaluate(
        "fetch('api/v1/sessions/' + Object.values(sessionStorage)[0], {method: 'DELETE'})"
    )
    me.click("#learn")
    me.wait("#session-problem", "The session has expired")
    me.expect(".class").to_have_count(0)
    me.page.route("**/classes", lambda route: route.abort())
    me.fill("#new-class-name", "cup")
    me.press("#new-class-name", "Enter")
    me.wait("#new-class-problem", "The server cannot be reached")
    me.page.route("**/models", lambda route: route.abort())
    me.reload()
    me.wait("#session-problem", "The server cannot be reached")
    me.check(expected_errors=r"ERR_FAILED|404")


_WATCH_CAMERAS = """() => {
  const media = navigator.mediaDevices;
  const real = media.getUserMedia.bind(media);
  window.tracks = [];
  media.getUserMedia = async (wanted) => {
    await new Promise((done) => setTimeout(done, 200));
    const stream = await real(wanted);
    window.tracks.push(...stream.getTracks());
    return stream;
  };
}"""
_ALL_OFF = "(count) => tracks.length === count && tracks.every((t) => t.readyState === 'ended')"


def test_hidden_cameras_are_off(visit: Callable[..., Any]) -> None:
    me = visit(1280)
    me.page.evaluate(_WATCH_CAMERAS)
    me.click("#try-inputs [data-tab=camera]")
    # A double click starts the camera once.
    me.page.locator("#try-inputs [data-do=start]").dblclick()
    me.expect("#try-inputs .camera.is-on").to_be_visible()
    me.click("#try-inputs [data-do=stop]")
    me.page.wait_for_function(_ALL_OFF, arg=1)
    # The user leaves the tab while the browser asks for permission.
    me.click("#try-inputs [data-do=start]")
    me.click("#try-inputs [data-tab=drop]")
    me.page.wait_for_function(_ALL_OFF, arg=2)
    me.check()
