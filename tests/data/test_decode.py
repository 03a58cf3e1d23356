"""Decoding converts every kind of image to uint8 pixels, or raises an error with the reason."""

from __future__ import annotations

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import ExifTags, Image

from alfa.data import _decode
from alfa.data._decode import (
    MAX_PIXELS,
    Crop,
    PhotoHeader,
    decode,
    decode_opened,
    load_photo,
    read_header,
    read_image_file,
    thumbnail,
    thumbnail_of,
)
from alfa.errors import DataError


@pytest.fixture
def photo() -> np.ndarray:
    """A color gradient, ``[height, width, channel]``."""
    y, x = np.mgrid[0:12, 0:12]
    return np.stack([x * 20, y * 20, 255 - x * 10 - y * 10], axis=2).astype(np.uint8)


def saved(image: Image.Image | np.ndarray, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    picture = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    picture.save(file, kind, **options)
    return file.getvalue()


def rgb(content: bytes | np.ndarray, size: int = 12) -> tuple[np.ndarray, list[str]]:
    return decode(content, size=size, num_channels=3)


def grey(content: bytes | np.ndarray, size: int = 12) -> tuple[np.ndarray, list[str]]:
    return decode(content, size=size, num_channels=1)


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that declares any size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = [chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(bytes(100))), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


# --- images without conversion


def test_an_image_of_the_right_size_keeps_every_pixel(photo) -> None:
    pixels, changes = rgb(saved(photo))
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, photo.transpose(2, 0, 1))
    assert changes == []


def test_pixels_in_memory_stay_as_they_are(photo) -> None:
    for array in (photo, np.asfortranarray(photo)):
        pixels, changes = rgb(array)
        assert np.array_equal(pixels, photo.transpose(2, 0, 1))
        assert pixels.flags.c_contiguous
        assert changes == []


@pytest.mark.parametrize("shape", [(12, 12), (12, 12, 1)])
def test_grey_pixels_in_memory_stay_as_they_are(photo, shape) -> None:
    pixels, changes = grey(photo[:, :, 0].reshape(shape))
    assert np.array_equal(pixels[0], photo[:, :, 0])
    assert changes == []


def test_a_jpeg_has_the_pixels_that_pillow_decodes(photo) -> None:
    content = saved(photo, "JPEG")
    expected = np.asarray(Image.open(io.BytesIO(content)))
    assert np.array_equal(rgb(content)[0], expected.transpose(2, 0, 1))


def test_another_size_is_squashed_and_not_worth_telling(photo) -> None:
    pixels, changes = rgb(saved(photo[:7]), size=5)
    expected = Image.fromarray(photo[:7]).resize((5, 5), Image.Resampling.LANCZOS)
    assert np.array_equal(pixels, np.asarray(expected).transpose(2, 0, 1))
    assert changes == []


# --- modes


def test_one_bit_becomes_black_and_white() -> None:
    bits = np.eye(12, dtype=bool)
    pixels, changes = grey(saved(Image.fromarray(bits)))
    assert np.array_equal(pixels[0], bits * np.uint8(255))
    assert changes == []


def test_grey_is_repeated_for_every_channel(photo) -> None:
    pixels, changes = rgb(saved(photo[:, :, 0]))
    assert np.array_equal(pixels, np.stack([photo[:, :, 0]] * 3))
    assert changes == ["gray converted to RGB"]


def test_colours_become_grey(photo) -> None:
    pixels, changes = grey(saved(photo))
    assert np.array_equal(pixels[0], np.asarray(Image.fromarray(photo).convert("L")))
    assert changes == ["RGB converted to gray"]


def test_a_palette_becomes_its_colours(photo) -> None:
    image = Image.fromarray(photo).quantize(16)
    pixels, changes = rgb(saved(image))
    assert np.array_equal(pixels, np.asarray(image.convert("RGB")).transpose(2, 0, 1))
    assert changes == ["palette converted to RGB"]


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    levels = np.linspace(0, 65535, 144).astype(np.uint16).reshape(12, 12)
    pixels, changes = grey(saved(Image.fromarray(levels)))
    assert np.array_equal(pixels[0], np.round(levels / 257).astype(np.uint8))
    assert (pixels.min(), pixels.max()) == (0, 255)
    assert changes == ["16 bits scaled to 8"]
    assert rgb(saved(Image.fromarray(levels)))[1] == [
        "16 bits scaled to 8",
        "gray converted to RGB",
    ]


def test_sixteen_bits_of_a_tiff_are_scaled_too() -> None:
    levels = np.linspace(0, 65535, 144).astype(np.uint16).reshape(12, 12)
    pixels, _ = grey(saved(Image.fromarray(levels), "TIFF"))
    assert np.array_equal(pixels[0], np.round(levels / 257).astype(np.uint8))


def test_levels_without_a_known_white_are_refused() -> None:
    levels = np.linspace(0, 3, 144).astype(np.float32).reshape(12, 12)
    with pytest.raises(DataError, match=r"gray levels from 0 to 3 without a known white level"):
        grey(saved(Image.fromarray(levels), "TIFF"))


def test_cmyk_becomes_rgb(photo) -> None:
    image = Image.fromarray(photo).convert("CMYK")
    pixels, changes = rgb(saved(image, "JPEG", quality=95))
    assert np.abs(pixels.astype(int) - photo.transpose(2, 0, 1)).mean() < 12
    assert changes == ["CMYK converted to RGB"]


def test_transparency_is_put_on_white(photo) -> None:
    alpha = np.zeros((12, 12, 1), np.uint8)
    alpha[:6] = 255
    pixels, changes = rgb(saved(np.concatenate([photo, alpha], axis=2)))
    assert np.array_equal(pixels[:, :6], photo.transpose(2, 0, 1)[:, :6])
    assert (pixels[:, 6:] == 255).all()
    assert changes == ["transparency blended with white"]


def test_half_transparent_pixels_are_half_white() -> None:
    black = np.zeros((12, 12, 4), np.uint8)
    black[:, :, 3] = 128
    assert set(rgb(saved(black))[0].ravel()) == {127}


def test_grey_with_transparency_is_put_on_white(photo) -> None:
    alpha = np.full((12, 12), 255, np.uint8)
    alpha[0] = 0
    pixels, changes = grey(saved(np.stack([photo[:, :, 0], alpha], axis=2)))
    assert (pixels[0, 0] == 255).all()
    assert np.array_equal(pixels[0, 1:], photo[1:, :, 0])
    assert changes == ["transparency blended with white"]


def test_a_transparent_colour_of_a_palette_is_put_on_white(photo) -> None:
    image = Image.fromarray(photo).quantize(16)
    index = int(np.asarray(image)[0, 0])
    pixels, changes = rgb(saved(image, transparency=index))
    there = np.asarray(image) == index
    assert (pixels[:, there] == 255).all()
    assert np.array_equal(
        pixels[:, ~there], np.asarray(image.convert("RGB")).transpose(2, 0, 1)[:, ~there]
    )
    assert changes == ["transparency blended with white"]


def test_alpha_that_hides_nothing_keeps_every_pixel(photo) -> None:
    alpha = np.full((12, 12, 1), 255, np.uint8)
    pixels, changes = rgb(saved(np.concatenate([photo, alpha], axis=2)))
    assert np.array_equal(pixels, photo.transpose(2, 0, 1))
    assert changes == ["RGBA converted to RGB"]


@pytest.mark.parametrize(
    ("orientation", "turned"),
    [
        (3, lambda image: image[::-1, ::-1]),
        (6, lambda image: np.rot90(image, -1)),
        (8, lambda image: np.rot90(image)),
    ],
)
def test_the_exif_orientation_is_honoured(photo, orientation: int, turned) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels, changes = rgb(saved(photo, exif=exif))
    assert np.array_equal(pixels, turned(photo).transpose(2, 0, 1))
    assert changes == ["EXIF orientation applied"]


def test_damaged_exif_does_not_matter(photo) -> None:
    pixels, changes = rgb(saved(photo, exif=b"Exif\0\0rubbish"))
    assert np.array_equal(pixels, photo.transpose(2, 0, 1))
    assert changes == []


def test_of_an_animation_the_first_frame_is_taken(photo) -> None:
    frames = [Image.fromarray(photo), Image.fromarray(255 - photo)]
    content = saved(frames[0], "PNG", save_all=True, append_images=frames[1:])
    pixels, changes = rgb(content)
    assert np.array_equal(pixels, photo.transpose(2, 0, 1))
    assert changes == ["only the first frame is used"]
    gif = saved(frames[0].quantize(8), "GIF", save_all=True, append_images=frames[1:])
    assert "only the first frame is used" in rgb(gif)[1]


# --- unusable images


def test_a_cut_off_file_is_refused(photo) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    for kind in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"):
        content = saved(noise, kind)
        with pytest.raises(DataError, match=r"^is (damaged or truncated \(.+\)|not an image)"):
            rgb(content[: len(content) // 2])


def test_damage_anywhere_is_refused_or_harmless(photo) -> None:
    """Pillow raises all kinds of errors, which `decode` must convert to a DataError."""
    rng = np.random.default_rng(0)
    refused = 0
    for kind in ("PNG", "GIF", "TIFF", "WEBP", "JPEG"):
        content = saved(photo, kind)
        for _ in range(60):
            damaged = bytearray(content)
            damaged[rng.integers(len(content))] ^= int(rng.integers(1, 256))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    pixels, _ = rgb(bytes(damaged))
                except DataError:
                    refused += 1
                else:
                    assert pixels.shape == (3, 12, 12)
    assert refused > 50


def test_what_is_not_an_image_is_refused() -> None:
    with pytest.raises(DataError, match=r"^is not an image, or its format is not supported$"):
        rgb(b"<html>not found</html>")
    with pytest.raises(DataError, match=r"^is an empty file$"):
        rgb(b"")


def test_a_program_is_not_run() -> None:
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    with pytest.raises(DataError, match="is not an image"):
        rgb(postscript)


@pytest.mark.parametrize("size", [(8000, 8001), (10_000, 10_000), (60_000, 60_000)])
def test_an_image_bomb_is_refused_before_it_goes_off(size) -> None:
    assert size[0] * size[1] > MAX_PIXELS
    with pytest.raises(
        DataError, match=r"\(the limit is 64,000,000\); it may be a decompression bomb"
    ):
        rgb(bomb(*size))


def test_an_image_bomb_is_refused_where_pillow_only_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DataError, match="declares 10000 x 10000 pixels"):
            rgb(bomb(10_000, 10_000))


def test_an_image_without_pixels_is_refused() -> None:
    with pytest.raises(DataError, match=r"^has no pixels \(0 x 12\)$"):
        rgb(np.zeros((12, 0, 3), np.uint8))
    with pytest.raises(DataError):
        rgb(bomb(0, 5))


@pytest.mark.parametrize(
    "pixels", [np.zeros((4, 4, 3)), np.zeros((4, 4, 5), np.uint8), np.zeros(4, np.uint8)]
)
def test_arrays_that_are_no_images_are_refused(pixels) -> None:
    told = rf"^must be uint8 \[height, width\] or .*, got {pixels.dtype} \[4"
    with pytest.raises(DataError, match=told):
        rgb(pixels)


# --- images that the caller opened


def pil(image: Image.Image) -> tuple[np.ndarray, list[str]]:
    return decode_opened(image, size=(5, 7), num_channels=3)


def test_an_opened_image_is_treated_as_its_file_is(photo) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    levels = np.linspace(0, 65535, 144).astype(np.uint16).reshape(12, 12)
    palette = Image.fromarray(photo).quantize(16)
    files = {
        "colours": saved(photo),
        "turned": saved(photo, "JPEG", exif=exif),
        "damaged EXIF": saved(photo, exif=b"Exif\0\0rubbish"),
        "16 bits": saved(Image.fromarray(levels)),
        "16 bits in 32": saved(Image.fromarray(levels.astype(np.int32)), "TIFF"),
        "a transparent colour": saved(photo, transparency=tuple(map(int, photo[0, 0]))),
        "a transparent entry": saved(palette, transparency=int(np.asarray(palette)[0, 0])),
        "CMYK": saved(Image.fromarray(photo).convert("CMYK"), "JPEG"),
    }
    for name, content in files.items():
        expected, told = decode(content, size=(5, 7), num_channels=3)
        image = Image.open(io.BytesIO(content))
        before = (image.mode, image.size)
        pixels, changes = pil(image)
        assert np.array_equal(pixels, expected), name
        assert changes == told, name
        assert (image.mode, image.size) == before, name


def _tiff(bits: int, content: bytes, width: int) -> bytes:
    """Gray levels with any number of bits, in a single row."""
    tags = {256: width, 257: 1, 258: bits, 259: 1, 262: 1, 277: 1, 278: 1, 279: len(content)}
    tags[273] = 8 + 2 + 12 * (len(tags) + 1) + 4
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, tags[tag]) for tag in sorted(tags))
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + content


def test_white_is_as_many_bits_as_the_file_says() -> None:
    # 0, 2048, 4095 and 0.
    pixels, changes = decode(_tiff(12, bytes.fromhex("000800fff000"), 4), size=None, num_channels=1)
    assert pixels.flatten().tolist() == [0, 128, 255, 0]
    assert changes == ["12 bits scaled to 8"]
    levels = struct.pack("<4H", 0, 4095, 32768, 65535)
    pixels, changes = decode(_tiff(16, levels, 4), size=None, num_channels=1)
    assert pixels.flatten().tolist() == [0, 16, 128, 255]
    assert changes == ["16 bits scaled to 8"]


def test_levels_of_32_bits_that_would_all_be_black_are_refused() -> None:
    grey = np.arange(144, dtype=np.int32).reshape(12, 12)
    with pytest.raises(DataError, match="gray levels from 0 to 143 without a known white level"):
        decode(saved(Image.fromarray(grey), "TIFF"), size=None, num_channels=1)
    black, _ = decode(saved(Image.fromarray(0 * grey), "TIFF"), size=None, num_channels=1)
    assert not black.any()


def test_a_file_that_is_too_large_for_an_image_is_not_read(tmp_path) -> None:
    path = tmp_path / "huge.jpg"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match=r"^has 1,099,512 MB, more than the limit of 522 MB"):
        read_image_file(path)


def test_an_opened_image_that_cannot_be_used_is_refused() -> None:
    noise = saved(Image.effect_noise((64, 64), 90))
    with pytest.raises(DataError, match=r"^is damaged or truncated \("):
        pil(Image.open(io.BytesIO(noise[: len(noise) // 2])))
    with pytest.raises(DataError, match=r"gray levels from 0 to 3 without a known white level"):
        pil(Image.fromarray(np.linspace(0, 3, 144, dtype=np.float32).reshape(12, 12)))
    with pytest.raises(DataError, match=r"^has no pixels \(0 x 3\)$"):
        pil(Image.new("L", (0, 3)))
    # The limit is below the one of Pillow's own warning.
    with pytest.raises(DataError, match="declares 8000 x 8001 pixels"):
        pil(Image.open(io.BytesIO(bomb(8000, 8001))))


# --- images without resizing, and thumbnails


def test_an_image_can_keep_its_own_size(photo) -> None:
    wide = np.concatenate([photo, photo], axis=1)
    for content in (saved(wide), wide):
        pixels, changes = decode(content, size=None, num_channels=3)
        assert (pixels == wide.transpose(2, 0, 1)).all()
        assert changes == []


def test_a_thumbnail_of_a_small_image_has_its_pixels(photo) -> None:
    small = Image.open(io.BytesIO(thumbnail(saved(photo), side=12)))
    assert small.format == "PNG"
    assert (np.asarray(small) == photo).all()


def test_a_thumbnail_of_a_photo_is_small_upright_and_tells_nothing_else() -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    exif[ExifTags.Base.ImageDescription] = "at home"
    content = saved(Image.new("RGB", (2000, 1000), "red"), "JPEG", exif=exif)
    found = thumbnail(content, side=64)
    small = Image.open(io.BytesIO(found))
    assert (small.format, small.size, small.mode) == ("JPEG", (32, 64), "RGB")
    assert not small.getexif()
    assert b"at home" not in found
    assert len(found) < 2000


def test_a_thumbnail_shows_what_is_transparent_on_white() -> None:
    found = thumbnail(saved(Image.new("LA", (4, 4), (0, 0))), side=8)
    assert (np.asarray(Image.open(io.BytesIO(found))) == 255).all()


def test_what_is_not_an_image_has_no_thumbnail() -> None:
    with pytest.raises(DataError, match="is not an image"):
        thumbnail(b"no image", side=8)
    with pytest.raises(DataError, match="damaged or truncated"):
        thumbnail(saved(Image.effect_noise((64, 64), 90))[:900], side=8)


@pytest.mark.parametrize(("side", "is_small"), [(20, True), (31, True), (32, False), (300, False)])
def test_small_photos_are_reported(side: int, is_small: bool) -> None:
    pixels = np.zeros((side, 2 * side, 3), np.uint8)
    _, changes = decode(pixels, size=64, num_channels=3, crop=Crop(70, "bicubic"))
    told = "is smaller than half of the 64 x 64 pixels that the model sees, so details are missing"
    assert changes == ([told] if is_small else [])
    # Models without a crop were trained on small images.
    assert decode(pixels, size=64, num_channels=3)[1] == []


@pytest.mark.parametrize(
    ("mode", "color"),
    [
        ("L", 90),
        ("RGB", (10, 200, 90)),
        ("RGBA", (10, 200, 90, 100)),
        ("LA", (90, 100)),
        ("P", 3),
        ("1", 1),
        ("I;16", 30_000),
        ("CMYK", (10, 200, 90, 5)),
    ],
)
def test_large_images_are_reduced_before_they_are_converted(
    mode: str, color, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = Image.new(mode, (1500, 1400), color)
    content = saved(image, "TIFF" if mode == "CMYK" else "PNG")
    expected, notes = rgb(content, 64)
    monkeypatch.setattr(_decode, "_LARGE", 1_000_000)
    monkeypatch.setattr(_decode, "_STRIP", 100_000)
    loaded = load_photo(content, size=(64, 64))
    assert loaded.size == (750, 700)
    found, own_notes = decode_opened(loaded, size=(64, 64), num_channels=3)
    assert np.abs(found.astype(int) - expected).max() <= 1
    # The reduced image has another mode.
    assert own_notes == notes or mode in ("P", "1", "LA")
    assert (rgb(content, 64)[0] == found).all()
    # Without a size, all pixels are wanted.
    assert load_photo(content).size == (1500, 1400)


def test_a_reduced_image_keeps_its_orientation_and_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = np.tile(np.linspace(0, 4095, 1500).astype(np.uint16), (1400, 1))
    tiff = Image.fromarray(levels)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    png = Image.fromarray((levels // 16).astype(np.uint8))
    contents = [
        saved(tiff, "TIFF", tiffinfo={ExifTags.Base.BitsPerSample: (12,)}),
        saved(png, "PNG", exif=exif),
    ]
    expected = [decode(content, size=64, num_channels=1) for content in contents]
    monkeypatch.setattr(_decode, "_LARGE", 1_000_000)
    for content, (pixels, notes) in zip(contents, expected, strict=True):
        loaded = load_photo(content, size=(64, 64))
        assert loaded.size == (750, 700)
        found, own_notes = decode_opened(loaded, size=(64, 64), num_channels=1)
        assert np.abs(found.astype(int) - pixels).max() <= 1
        assert own_notes == notes
    # Dark on the left becomes dark at the top.
    assert found[0, 0].max() < 10 < 240 < found[0, -1].min()


def test_a_header_has_the_upright_size() -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 8
    content = saved(Image.new("RGB", (30, 20)), "JPEG", exif=exif)
    assert read_header(content) == PhotoHeader("JPEG", 20, 30)
    with pytest.raises(DataError, match="is not an image"):
        read_header(b"no image")


def test_a_thumbnail_does_not_change_its_image() -> None:
    image = Image.new("RGB", (300, 200), "red")
    assert Image.open(io.BytesIO(thumbnail_of(image, side=30))).size == (30, 20)
    assert image.size == (300, 200)
