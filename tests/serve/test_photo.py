"""Uploaded photos and drawings."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alfa.data import draw
from alfa.errors import DataError
from alfa.estimator import PreparedImages
from alfa.serve._model import Model
from alfa.serve._photo import Photo, Upload, clean_name, decode_upload

CROSS = [[[0.2, 0.2], [0.8, 0.8]], [[0.8, 0.2], [0.2, 0.8]]]


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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("IMG 1.jpg", "IMG 1.jpg"),
        ("/etc/passwd", "passwd"),
        ("C:\\photos\\a.jpg", "a.jpg"),
        ("../..", "photo"),
        ("", "photo"),
        ("a\r\nX-Own: 1.png", "a__X-Own: 1.png"),
        ("x" * 200 + ".jpeg", "x" * 70 + "…xxxx.jpeg"),
    ],
)
def test_names_of_files_are_cleaned(name: str, expected: str) -> None:
    assert clean_name(name) == expected
