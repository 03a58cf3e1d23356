"""The figure of an episode: every image once, in the row of its class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from alfa.data import FewShot, ImageSet, Strokes
from alfa.errors import DataError
from alfa.report.episode_figure import episode_figure


def solid(names: list[str], *, num_images: int = 9, side: int = 40, channels: int = 3) -> ImageSet:
    """Return images of one color each: red is the number of the class, green of the image."""
    classes = {}
    for number, name in enumerate(names):
        images = np.full((num_images, channels, side, side), 7, np.uint8)
        images[:, 0] = 10 + number
        if channels > 1:
            images[:, 1] = np.arange(num_images)[:, None, None]
        classes[name] = images
    return ImageSet.of_arrays("colors", {"test": classes, "train": classes})


@pytest.fixture
def written(monkeypatch) -> list[str]:
    """Record all texts in a figure."""
    texts: list[str] = []
    real = ImageDraw.ImageDraw.text

    def text(self, xy, text, *args, **options):
        texts.append(text)
        return real(self, xy, text, *args, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    return texts


def opened(path: Path) -> np.ndarray:
    with Image.open(path) as sheet:
        assert (sheet.format, sheet.mode) == ("PNG", "RGB")
        return np.asarray(sheet)


def boxes_of(path: Path, numbers: np.ndarray, num_images: int) -> np.ndarray:
    """Return the left, top, right, and bottom of solid images ``[...]`` on the sheet."""
    codes = opened(path).astype(int) @ (2**16, 2**8, 1)
    boxes = []
    for number in numbers.ravel():
        code = (10 + number // num_images) * 2**16 + number % num_images * 2**8 + 7
        down, right = (codes == code).nonzero()
        boxes.append([right.min(), down.min(), right.max() + 1, down.max() + 1])
        # The whole box has this color.
        assert len(down) == (boxes[-1][2] - boxes[-1][0]) * (boxes[-1][3] - boxes[-1][1])
    return np.array(boxes).reshape(*numbers.shape, 4)


def test_every_class_is_a_row_with_support_left_and_queries_right(tmp_path):
    tasks = FewShot(solid(list("abcdef")), way=4, shot=2, num_query=5)
    path = tmp_path / "sheet.png"
    episode_figure(tasks, path, split="test", index=3, seed=2)
    _, (numbers,) = tasks.draw(3, num_tasks=1, split="test", seed=2)
    boxes = boxes_of(path, numbers, 9)
    left, top, right, bottom = np.moveaxis(boxes, -1, 0)
    assert ((right - left) == 80).all()
    assert ((bottom - top) == 80).all()
    assert (top == top[:, :1]).all()
    assert (np.diff(top[:, 0]) > 80).all()
    assert (np.diff(left, axis=1) > 80).all()
    gaps = left[:, 1:] - right[:, :-1]
    assert (gaps[:, 1] > 3 * gaps[:, 0]).all()
    height, width, _ = opened(path).shape
    assert right.max() < width
    assert bottom.max() < height


def test_titles_and_names_describe_the_episode(tmp_path, written):
    names = ["cat", "dog", "owl", "cow", "bee"]
    tasks = FewShot(solid(names), way=5, shot=2, num_query=5)
    episode_figure(tasks, tmp_path / "sheet.png", split="test", index=3, seed=2)
    ((classes,), _) = tasks.draw(3, num_tasks=1, split="test", seed=2)
    assert "colors, test split: 5-way 2-shot, 5 queries per class" in written
    assert "episode 3, seed 2" in written
    assert [text for text in written if text in names] == [names[number] for number in classes]
    assert {"class", "support", "query"} <= set(written)


def test_images_keep_their_pixels(tmp_path):
    images = Strokes(num_classes=5, num_examples=2).images()
    tasks = FewShot(images, way=1, shot=1, num_query=1)
    path = tmp_path / "sheet.png"
    episode_figure(tasks, path, split="test")
    sheet = opened(path)[:, :, 0]
    _, numbers = tasks.draw(0, num_tasks=1, split="test")
    for pixels in images.images[numbers.ravel(), 0]:
        tile = pixels.repeat(3, axis=0).repeat(3, axis=1)
        windows = np.lib.stride_tricks.sliding_window_view(sheet, tile.shape)
        # The corner of every image is white, unlike the background.
        corners = np.argwhere((windows[:, :, 0] == tile[0]).all(axis=2))
        assert sum(np.array_equal(windows[down, right], tile) for down, right in corners) == 1


def test_many_images_of_a_class_take_several_lines(tmp_path):
    tasks = FewShot(solid(["a", "b"], num_images=60), way=2, shot=20, num_query=40)
    path = tmp_path / "sheet.png"
    episode_figure(tasks, path, split="test")
    _, (numbers,) = tasks.draw(0, num_tasks=1, split="test")
    boxes = boxes_of(path, numbers, 60)
    assert len(np.unique(boxes[0, :20, 1])) == 2
    assert len(np.unique(boxes[0, 20:, 1])) == 3
    assert boxes[0, :, 3].max() < boxes[1, :, 1].min()
    assert boxes[:, :20, 2].max() < boxes[:, 20:, 0].min()


@pytest.mark.parametrize(("side", "shown"), [(8, 64), (28, 84), (32, 64), (64, 64), (84, 84)])
def test_small_images_are_enlarged_by_a_whole_factor(tmp_path, side, shown):
    tasks = FewShot(solid(["a", "b"], side=side), way=2, shot=1, num_query=1)
    path = tmp_path / "sheet.png"
    episode_figure(tasks, path, split="test")
    _, (numbers,) = tasks.draw(0, num_tasks=1, split="test")
    left, _, right, _ = np.moveaxis(boxes_of(path, numbers, 9), -1, 0)
    assert (right - left == shown).all()


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_images_of_any_number_of_channels(tmp_path, channels):
    tasks = FewShot(solid(["a", "b"], channels=channels), way=2, shot=2, num_query=2)
    episode_figure(tasks, tmp_path / "sheet.png", split="test")
    assert opened(tmp_path / "sheet.png").shape[2] == 3


def test_parts_of_a_path_are_lines_and_long_lines_are_cut(tmp_path, written):
    names = ["Alphabet_of_the_Magi/character01", "x" * 200, "Ωμέγα"]
    tasks = FewShot(solid(names), way=3, shot=1, num_query=1)
    episode_figure(tasks, tmp_path / "sheet.png", split="test")
    assert {"Alphabet_of_the_Magi", "character01", "Ωμέγα"} <= set(written)
    (cut,) = [text for text in written if text.startswith("xx")]
    assert cut.endswith("x…")
    assert len(cut) < 50


def test_augmented_images_are_shown_as_the_model_sees_them(tmp_path):
    images = Strokes(num_classes=10, num_examples=4).images()
    sheets = []
    for augment in (False, True):
        tasks = FewShot(images, way=3, shot=2, num_query=2, augment=augment)
        episode_figure(tasks, tmp_path / f"{augment}.png", split="train")
        sheets.append((tmp_path / f"{augment}.png").read_bytes())
    assert sheets[0] != sheets[1]


def test_the_same_episode_gives_the_same_file(tmp_path):
    tasks = FewShot(solid(list("abc")), way=3, shot=1, num_query=2)
    for name in ("one.png", "folder/other.png"):
        episode_figure(tasks, tmp_path / name, split="test", index=1)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "folder/other.png").read_bytes()
    episode_figure(tasks, tmp_path / "third.png", split="test", index=2)
    assert (tmp_path / "third.png").read_bytes() != (tmp_path / "one.png").read_bytes()


def test_a_missing_split_is_an_error_and_writes_nothing(tmp_path):
    tasks = FewShot(solid(list("abc")), way=3, shot=1, num_query=2)
    with pytest.raises(DataError, match="it has no val classes"):
        episode_figure(tasks, tmp_path / "sheet.png", split="val")
    assert not list(tmp_path.iterdir())
