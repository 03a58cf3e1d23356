"""HEIC photos are read like others with pillow-heif; without it, one error names the extra."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

from alfa.data import Crop, ImageFormat, Signature, decode, open_image, prepare
from alfa.data._decode import _is_heic, thumbnail
from alfa.data.photos import list_support_photos, load_photos
from alfa.data.sources import Folder
from alfa.errors import ConfigError, DataError
from alfa.estimator._images import ImageReader
from alfa.testing import register_small_backbone

NEEDED = r"is a HEIC photo, which needs pillow-heif; run `pip install 'alfa\[heic\]'`, or save"


@pytest.fixture
def heif() -> Any:
    return pytest.importorskip("pillow_heif", reason="needs pip install 'alfa[heic]'")


@pytest.fixture
def photo() -> np.ndarray:
    """A color gradient, ``[height, width, channel]``."""
    y, x = np.mgrid[0:64, 0:96]
    return np.stack([x * 2, y * 3, 255 - x * 2], axis=2).astype(np.uint8)


def encoded(heif: Any, pixels: np.ndarray, *, orientation: int = 1) -> bytes:
    mode, size = ("L" if pixels.ndim == 2 else "RGB"), (pixels.shape[1], pixels.shape[0])
    file = heif.from_bytes(mode, size, pixels.tobytes())
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    file.info["exif"] = exif.tobytes()
    buffer = io.BytesIO()
    file.save(buffer, quality=95)
    return buffer.getvalue()


def brands(*names: bytes) -> bytes:
    """The start of a file with these brands, the first of which is the main brand."""
    content = names[0] + bytes(4) + b"".join(names[1:])
    return (8 + len(content)).to_bytes(4, "big") + b"ftyp" + content + bytes(64)


# --- files


@pytest.mark.parametrize("main", [b"heic", b"heix", b"hevc", b"mif1"])
def test_files_are_recognized_by_their_brands(main: bytes) -> None:
    assert _is_heic(brands(main, b"mif1", b"heic"))


@pytest.mark.parametrize(
    "content",
    [brands(b"avif", b"mif1"), brands(b"mif1", b"avif"), brands(b"qt  "), b"heic", b"", bytes(64)],
)
def test_other_files_are_not_heic(content: bytes) -> None:
    assert not _is_heic(content)


def test_avif_files_are_left_to_pillow(photo: np.ndarray) -> None:
    buffer = io.BytesIO()
    Image.fromarray(photo).save(buffer, "AVIF", quality=95)
    assert not _is_heic(buffer.getvalue())
    found, _ = decode(buffer.getvalue(), size=None, num_channels=3)
    assert np.abs(found.transpose(1, 2, 0).astype(int) - photo).max() < 12


# --- with pillow-heif


def test_a_photo_is_decoded(heif: Any, photo: np.ndarray) -> None:
    formats = dict(Image.OPEN)
    found, changes = decode(encoded(heif, photo), size=None, num_channels=3)
    assert np.abs(found.transpose(1, 2, 0).astype(int) - photo).max() < 12
    assert changes == []
    assert open_image(encoded(heif, photo)).size == (96, 64)
    assert formats == Image.OPEN


def test_a_photo_is_cropped_and_converted_to_gray(heif: Any, photo: np.ndarray) -> None:
    crop = Crop(20, "bilinear")
    for pixels in (photo, photo[:, :, 0].copy()):
        found, _ = decode(encoded(heif, pixels), size=16, num_channels=1, crop=crop)
        expected, _ = decode(pixels, size=16, num_channels=1, crop=crop)
        assert np.abs(found.astype(int) - expected).max() < 8


def test_a_photo_is_upright(heif: Any, photo: np.ndarray) -> None:
    found, _ = decode(encoded(heif, photo, orientation=6), size=None, num_channels=3)
    upright = np.rot90(photo, -1)
    assert np.abs(found.transpose(1, 2, 0).astype(int) - upright).max() < 12


def test_a_thumbnail_is_a_jpeg_without_metadata(heif: Any, photo: np.ndarray) -> None:
    small = Image.open(io.BytesIO(thumbnail(encoded(heif, photo, orientation=6), side=48)))
    assert (small.format, small.size, dict(small.getexif())) == ("JPEG", (32, 48), {})


@pytest.mark.parametrize("part", [40, 300, -100])
def test_a_damaged_photo_is_an_error(heif: Any, photo: np.ndarray, part: int) -> None:
    with pytest.raises(DataError, match=r"^is damaged or truncated \(.+\)$"):
        decode(encoded(heif, photo)[:part], size=8, num_channels=3)


def test_a_bomb_is_an_error(heif: Any, photo: np.ndarray, monkeypatch) -> None:
    content = encoded(heif, photo)
    monkeypatch.setattr("alfa.data._decode.MAX_PIXELS", 96 * 64 - 1)
    with pytest.raises(DataError, match="declares 96 x 64 pixels"):
        open_image(content)


def test_class_folders_may_contain_heic(heif: Any, photo: np.ndarray, tmp_path: Path) -> None:
    folder = folders(tmp_path, encoded(heif, photo))
    image_format = small_format()
    photos = load_photos(list_support_photos(folder), image_format=image_format, side=32)
    assert photos.problems == []
    assert photos.pixels.shape == (6, 24, 24, 3)
    assert all(photos.thumbnails)
    store = prepare(Folder(split="train", size=16), folder, root=tmp_path, name="phone", workers=1)
    assert len(store.images) == 6


# --- without pillow-heif


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)


@pytest.mark.usefixtures("without")
def test_the_same_error_names_the_extra(tmp_path: Path) -> None:
    content = brands(b"heic", b"mif1", b"heic")
    calls = (
        lambda: open_image(content),
        lambda: decode(content, size=8, num_channels=3),
        lambda: thumbnail(content, side=8),
    )
    for call in calls:
        with pytest.raises(DataError, match=f"^{NEEDED}"):
            call()
    folder = folders(tmp_path, content)
    photos = load_photos(list_support_photos(folder), image_format=small_format())
    reasons = [problem.what for problem in photos.problems if ".HEIC" in problem.where]
    assert len(reasons) == 6
    with pytest.raises(DataError, match=f"cat/1.HEIC: {NEEDED}"):
        prepare(Folder(split="train", size=16), folder, root=tmp_path, name="phone", workers=1)
    path = folder / "cat" / "1.HEIC"
    with pytest.raises(ConfigError, match=f"1.HEIC {NEEDED}"):
        ImageReader.fit(small_format(), [path], None).read([path])


def folders(tmp_path: Path, content: bytes) -> Path:
    for label in ("cat", "dog"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in (1, 2, 3):
            (tmp_path / "photos" / label / f"{number}.HEIC").write_bytes(content)
    return tmp_path / "photos"


def small_format() -> ImageFormat:
    return ImageFormat.of(Signature((8,), 5, "cross_entropy", backbone=register_small_backbone()))
