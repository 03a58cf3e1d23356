"""Drawings as inputs of the model."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from alfa.data import Strokes
from alfa.errors import DataError
from alfa.estimator import PreparedImages
from alfa.serve._drawing import CHARACTER_EXTENT, draw
from alfa.serve._limits import MAX_POINTS
from alfa.serve._model import Model
from alfa.serve._photo import Photo, Upload, decode_upload

CROSS = [[[0.2, 0.2], [0.8, 0.8]], [[0.8, 0.2], [0.2, 0.8]]]


def _moved(strokes: list[Any], scale: float, shift: float) -> list[Any]:
    return [[[scale * x + shift, scale * y + shift] for x, y in stroke] for stroke in strokes]


def test_ink_is_centered_and_dark_on_white() -> None:
    pixels = draw(CROSS, size=56, dark=True)
    assert pixels.dtype == np.uint8
    assert pixels[0, 0] == 255
    assert pixels[28, 28] < 40
    rows, columns = np.nonzero(pixels < 128)
    for places in (rows, columns):
        assert (places.min() + places.max()) / 2 == pytest.approx(27.5, abs=0.6)
        # The path has the extent of the training characters, plus the line width.
        extent = (places.max() - places.min() + 1) / 56
        assert CHARACTER_EXTENT <= extent <= CHARACTER_EXTENT + 0.1
    assert (draw(CROSS, size=56, dark=False) == 255 - pixels).all()


def test_amount_of_ink_matches_the_training_characters() -> None:
    characters = Strokes(num_classes=50, num_examples=2).images().images
    usual = 255 - characters.reshape(100, -1).mean(1)
    ink = 255 - draw(CROSS, size=28, dark=True).mean()
    assert usual.min() < ink < usual.max()


def test_size_and_position_do_not_matter() -> None:
    pixels = draw(CROSS, size=28, dark=True)
    for scale, shift in ((0.1, 0.85), (40.0, -300.0)):
        again = draw(_moved(CROSS, scale, shift), size=28, dark=True)
        assert np.abs(pixels.astype(int) - again).max() <= 1


def test_batches_do_not_change_a_long_line() -> None:
    way = [[[x, np.sin(9 * x)] for x in np.linspace(0, 1, 2_000)]]
    coarse = [[[x, np.sin(9 * x)] for x in np.linspace(0, 1, 400)]]
    fine = draw(way, size=28, dark=True).astype(int)
    assert np.abs(fine - draw(coarse, size=28, dark=True)).max() <= 12


def test_a_dot_is_a_drawing() -> None:
    pixels = draw([[[0.9, 0.1]]], size=28, dark=True)
    rows, columns = np.nonzero(pixels < 128)
    assert 0 < len(rows) <= 12
    assert rows.mean() == columns.mean() == pytest.approx(13.5)


@pytest.mark.parametrize(
    ("strokes", "reason"),
    [
        ([], "the pad is empty"),
        ([[]], "the pad is empty"),
        (None, "is invalid"),
        ("[[1, 2]]", "is invalid"),
        ([1, 2], "is invalid"),
        ([[1, 2]], "is invalid"),
        ([[[1, 2, 3]]], "is invalid"),
        ([[[1, 2], [3]]], "is invalid"),
        ([[[1, float("nan")]]], "is invalid"),
        ([[[1e300, 1]]], "is invalid"),
        ([[[10**400, 1]]], "is invalid"),
        ([[["a", "b"]]], "is invalid"),
        ([[{"x": 1}]], "is invalid"),
        ([[[0.0, 0.0]] * (MAX_POINTS + 1)], "more than the limit of 5,000"),
    ],
)
def test_invalid_drawings_raise(strokes: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        draw(strokes, size=28, dark=True)


@pytest.mark.parametrize(
    ("dataset", "dark"),
    [("strokes-free", True), ("omniglot", True), ("md-omniglot", True), ("md-quickdraw", False)],
)
def test_ink_matches_the_dataset(run: Path, tmp_path: Path, dataset: str, dark: bool) -> None:
    model = Model(run_on(run, tmp_path, dataset))
    assert (model.input, model.dark_ink) == ("drawing", dark)
    upload = Upload("a.json", json.dumps(CROSS).encode(), is_drawing=True)
    decoded = decode_upload(upload, model, side_pixels=100)
    assert (decoded.levels == draw(CROSS, size=16, dark=dark)).all()
    # The thumbnail is dark on white, and the saved file looks like the training images.
    assert np.asarray(Image.open(io.BytesIO(decoded.thumbnail)))[0, 0] == 255
    images = PreparedImages.of(model.image_format, decoded.levels[None])
    photo = Photo("e1", upload, 128, 128, decoded.thumbnail, images, None)
    corner = np.asarray(Image.open(io.BytesIO(photo.file(dark=model.dark_ink))))[0, 0]
    assert corner == (255 if dark else 0)


@pytest.mark.parametrize("dataset", ["mnist", "scans"])
def test_drawings_need_a_dataset_with_known_ink(run: Path, tmp_path: Path, dataset: str) -> None:
    model = Model(run_on(run, tmp_path, dataset))
    assert model.input == "photo"
    with pytest.raises(DataError, match="this model takes photos; choose a model for drawings"):
        decode_upload(Upload("a.json", b"[]", is_drawing=True), model, side_pixels=100)


def run_on(run: Path, folder: Path, dataset: str) -> Path:
    """Return a copy of a run that claims to be trained on another dataset."""
    copy = folder / "copy"
    shutil.copytree(run, copy)
    config = copy / "config.toml"
    text = config.read_text()
    assert 'dataset = "strokes"' in text
    config.write_text(text.replace('dataset = "strokes"', f'dataset = "{dataset}"'))
    return copy
