"""Decode image files and arrays to pixels of one size and number of channels."""

import contextlib
import importlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from alfa.errors import DataError

# An image that declares more pixels may be a decompression bomb: small on disk, large in memory.
MAX_PIXELS = 64_000_000
# The size of that many uncompressed pixels with four channels of 16 bits, and a header.
MAX_BYTES = 8 * MAX_PIXELS + 10_000_000
# Formats that store pixels only: others are programs (EPS runs Ghostscript) or vector graphics.
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "MPO", "JPEG2000", "PPM", "TGA", "TIFF", "AVIF")
# The brands of HEIC files (ISO/IEC 23008-12, annex B), and the brands of AVIF, which Pillow reads.
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"}
_AVIF_BRANDS = {b"avif", b"avis"}
_MODE_NAMES = {"1": "1-bit", "L": "gray", "P": "palette"}
# Converting a larger image takes several times its memory, so it is first reduced to at least
# `_LEAST` pixels per side, in strips of `_STRIP` pixels.
_LARGE, _LEAST, _STRIP = 16_000_000, 640, 1_000_000


@dataclass(frozen=True)
class Crop:
    """Keep the aspect ratio: resize the shorter side of an image, and crop the center.

    Attributes:
        shorter_side: the length of the shorter side before the crop, in pixels.
        resample: the filter that resizes.
    """

    shorter_side: int
    resample: Literal["bilinear", "bicubic"]

    def box(self, width: int, height: int, side: int) -> tuple[float, float, float, float]:
        """Return the part of an image that a crop of `side` pixels shows, in its coordinates."""
        part = side * min(width, height) / self.shorter_side
        return (width - part) / 2, (height - part) / 2, (width + part) / 2, (height + part) / 2

    @property
    def filter(self) -> Image.Resampling:
        return Image.Resampling[self.resample.upper()]


def decode(
    content: bytes | np.ndarray,
    *,
    size: int | tuple[int, int] | None,
    num_channels: int,
    crop: Crop | None = None,
) -> tuple[np.ndarray, list[str]]:
    """Decode an image file, or uint8 pixels ``[height, width]`` or ``[height, width, channel]``.

    The image is resized to `size`, a side or height and width, unless `size` is None. Without a
    `crop`, its aspect ratio is not kept, as in the published datasets. `num_channels` is 3, or 1
    for gray.

    Returns:
        Pixels, uint8 ``[channel, height, width]``, and a list of conversions other than resizing.

    Raises:
        DataError: the image cannot be decoded; the message does not name it.
    """
    wanted = (size, size) if isinstance(size, int) else size
    if isinstance(content, np.ndarray) and content.dtype == np.uint8 and wanted is not None:
        shape = (*wanted, num_channels)
        # Without Pillow, pixels of the right shape take much less time.
        if content.shape == shape or (num_channels == 1 and content.shape == wanted):
            return np.ascontiguousarray(content.reshape(shape).transpose(2, 0, 1)), []
    with decoding_errors():
        if isinstance(content, bytes):
            image = load_photo(content, size=wanted, crop=crop)
        else:
            image = _from_pixels(content)
        return _fitted(image, wanted, num_channels, crop)


def decode_opened(
    image: Image.Image, *, size: tuple[int, int], num_channels: int, crop: Crop | None = None
) -> tuple[np.ndarray, list[str]]:
    """Decode the current frame of an open image, like `decode`, without changing the image."""
    with decoding_errors():
        _check_size(image.size)
        image.load()
        return _fitted(image, size, num_channels, crop)


def load_image(content: bytes) -> Image.Image:
    """Open an image file and load its pixels."""
    image = open_image(content)
    image.load()
    return image


def load_photo(
    content: bytes, *, size: tuple[int, int] | None = None, crop: Crop | None = None
) -> Image.Image:
    """Open an image file and load the pixels that an image of this size or crop depends on.

    A large image is reduced, so `decode_opened` and `thumbnail_of` need little more memory than the
    decoder. Without a size, the image keeps its pixels.
    """
    with decoding_errors():
        image = open_image(content)
        side = crop.shorter_side if crop is not None else max(size or (0,))
        least = max(2 * side, _LEAST)
        is_large = size is not None and image.width * image.height > _LARGE
        # JPEG can skip most of the pixels of a large photo.
        if crop is not None:
            image.draft(None, (2 * side, 2 * side))
        elif is_large:
            image.draft(None, (least, least))
        image.load()
        factor = min(image.size) // least
        return _reduced(image, factor) if is_large and factor > 1 else image


def _reduced(image: Image.Image, factor: int) -> Image.Image:
    """Average squares of pixels, in strips, because some modes need copies of their pixels."""
    rows = max(1, _STRIP // (image.width * factor)) * factor
    tops = range(0, image.height, rows)
    boxes = [(0, top, image.width, min(top + rows, image.height)) for top in tops]
    strips = [_averageable(image.crop(box)).reduce(factor) for box in boxes]
    small = Image.new(strips[0].mode, (strips[0].width, sum(each.height for each in strips)))
    for number, strip in enumerate(strips):
        small.paste(strip, (0, number * rows // factor))
    if image.mode.startswith("I;16"):
        small = small.convert("I;16")
    if hasattr(image, "tag_v2"):
        # The tags of a TIFF file declare its bits.
        small.tag_v2 = image.tag_v2  # type: ignore[attr-defined]
    if (orientation := _orientation(image)) != 1:
        small.getexif()[ExifTags.Base.Orientation] = orientation
    return small


def _averageable(image: Image.Image) -> Image.Image:
    """Convert an image to a mode whose pixels can be averaged."""
    if image.has_transparency_data:
        return image.convert("RGBA")
    if image.mode.startswith("I;16"):
        return image.convert("I")
    return image.convert({"1": "L", "P": "RGB"}.get(image.mode, image.mode))


def _fitted(
    image: Image.Image, size: tuple[int, int] | None, num_channels: int, crop: Crop | None
) -> tuple[np.ndarray, list[str]]:
    image, changes = _converted(image, "L" if num_channels == 1 else "RGB")
    height, width = size or (image.height, image.width)
    if crop is not None and 2 * min(image.size) < height:
        changes.append(
            f"is smaller than half of the {height} x {width} pixels that the model sees, so "
            "details are missing"
        )
    if image.size != (width, height):
        box = None if crop is None else crop.box(*image.size, height)
        resample = Image.Resampling.LANCZOS if crop is None else crop.filter
        image = image.resize((width, height), resample, box)
    pixels = np.asarray(image).reshape(height, width, num_channels)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)), changes


def thumbnail(content: bytes, *, side: int) -> bytes:
    """Make an upright thumbnail without metadata: a JPEG, or a PNG if the image fits already."""
    with decoding_errors():
        image = open_image(content)
        # JPEG can skip most of the pixels of a large photo.
        image.draft("RGB", (2 * side, 2 * side))
        return thumbnail_of(image, side=side)


def thumbnail_of(image: Image.Image, *, side: int) -> bytes:
    """Make a thumbnail of an open image, like `thumbnail`."""
    with decoding_errors():
        fits = max(image.size) <= side
        small, _ = _converted(image, "RGB")
        # `Image.thumbnail` changes the image itself.
        small = image.copy() if small is image else small
        small.thumbnail((side, side))
        # A new image drops metadata, such as the location of a photo.
        small = Image.fromarray(np.asarray(small))
        buffer = io.BytesIO()
        small.save(buffer, "PNG" if fits else "JPEG", optimize=True)
    return buffer.getvalue()


@contextlib.contextmanager
def decoding_errors() -> Iterator[None]:
    """Convert all errors of Pillow to a DataError, whose message does not name the image."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large("too many") from None
    # The type of Pillow's error depends on the position of the damage.
    except Exception as error:
        raise _damaged(error) from None


def _damaged(error: Exception) -> DataError:
    # Some decoders describe a problem on several lines.
    reason = " ".join(str(error).split()) or type(error).__name__
    return DataError(f"is damaged or truncated ({reason})")


def _too_large(declared: str) -> DataError:
    return DataError(
        f"declares {declared} pixels (the limit is {MAX_PIXELS:,}); it may be a decompression "
        "bomb, so resize it"
    )


def read_image_file(path: Path | str) -> bytes:
    """Read an image file; raise a DataError if it is too large to be an image."""
    size = os.stat(path).st_size
    if size > MAX_BYTES:
        raise DataError(
            f"has {size / 1e6:,.0f} MB, more than the limit of {MAX_BYTES / 1e6:,.0f} MB for images"
        )
    return Path(path).read_bytes()


def open_image(content: bytes) -> Image.Image:
    """Open an image file without loading its pixels; raise a DataError if that is impossible."""
    if not content:
        raise DataError("is an empty file")
    if _is_heic(content):
        return _open_heic(content)
    # Not every build of Pillow supports all formats.
    Image.init()
    formats = [name for name in _FORMATS if name in Image.OPEN]
    try:
        image = Image.open(io.BytesIO(content), formats=formats)
    except UnidentifiedImageError:
        raise DataError("is not an image, or its format is not supported") from None
    _check_size(image.size)
    return image


def _is_heic(content: bytes) -> bool:
    """Return whether a file starts with a list of brands that has one of HEIC."""
    if content[4:8] != b"ftyp":
        return False
    end = int.from_bytes(content[:4], "big")
    # The main brand, four bytes of its version, and the other brands; the box is never long.
    listed = content[8 : min(end, 256)]
    brands = {listed[i : i + 4] for i in range(0, len(listed), 4)}
    return bool(brands & _HEIC_BRANDS) and not brands & _AVIF_BRANDS


def _open_heic(content: bytes) -> Image.Image:
    try:
        pillow_heif = importlib.import_module("pillow_heif")
    except ImportError:
        raise DataError(
            "is a HEIC photo, which needs pillow-heif; run `pip install 'alfa[heic]'`, or save the "
            "photo as JPEG"
        ) from None
    try:
        # The class alone: the process's registry of Pillow's formats stays unchanged.
        image: Image.Image = pillow_heif.HeifImageFile(io.BytesIO(content))
    except (SyntaxError, ValueError, OSError, RuntimeError) as error:
        raise _damaged(error) from None
    _check_size(image.size)
    return image


def _from_pixels(pixels: np.ndarray) -> Image.Image:
    shape = pixels.shape
    known = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 2, 3, 4))
    if pixels.dtype != np.uint8 or not known:
        raise DataError(
            "must be uint8 [height, width] or [height, width, channel] with 1 to 4 channels, got "
            f"{pixels.dtype} {list(shape)}"
        )
    _check_size((shape[1], shape[0]))
    return Image.fromarray(pixels[:, :, 0] if shape[2:] == (1,) else pixels)


def _check_size(size: tuple[int, int]) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise DataError(f"has no pixels ({width} x {height})")
    if width * height > MAX_PIXELS:
        raise _too_large(f"{width} x {height}")


def _converted(image: Image.Image, mode: str) -> tuple[Image.Image, list[str]]:
    """Convert an image to the mode ``"L"`` or ``"RGB"``; also return a list of the conversions."""
    changes = []
    # Only TIFF files declare the bits of gray levels; a color file has one number per channel.
    declared = getattr(image, "tag_v2", {}).get(ExifTags.Base.BitsPerSample)
    bits = next((bits for bits in range(9, 16) if declared == (bits,)), 16)
    if getattr(image, "is_animated", False):
        # The caller of `decode_opened` may have selected another frame.
        changes.append(f"only the {'current' if image.tell() else 'first'} frame is used")
    if _orientation(image) in range(2, 9):
        image = ImageOps.exif_transpose(image)
        changes.append("EXIF orientation applied")
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = _eight_bits(image, bits)
        changes.append(f"{bits} bits scaled to 8")
    if image.has_transparency_data:
        before, rgba = image.mode, image.convert("RGBA")
        is_opaque = rgba.getchannel("A").getextrema()[0] == 255
        # Pillow composites every kind of transparency correctly only in RGBA.
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
        image = image.convert("L" if before in ("1", "L", "LA", "La") else "RGB")
        blended = "transparency blended with white"
        changes.append(_mode_change(before, image.mode) if is_opaque else blended)
    if image.mode != mode:
        # 1-bit pixels are the same in 8 bits.
        if (image.mode, mode) != ("1", "L"):
            changes.append(_mode_change(image.mode, mode))
        image = image.convert(mode)
    return image, changes


def _mode_change(before: str, after: str) -> str:
    return f"{_MODE_NAMES.get(before, before)} converted to {_MODE_NAMES.get(after, after)}"


@dataclass(frozen=True)
class PhotoHeader:
    """The format of an image file, such as ``"JPEG"``, and its upright width and height."""

    format: str
    width: int
    height: int


def read_header(content: bytes) -> PhotoHeader:
    """Read the header of an image file; raise a DataError if it is not an image."""
    with decoding_errors():
        image = open_image(content)
        width, height = image.size
        if _orientation(image) in range(5, 9):
            width, height = height, width
        return PhotoHeader(image.format or "", width, height)


def _orientation(image: Image.Image) -> int:
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    # An image with valid pixels may have EXIF data with any kind of damage.
    except Exception:
        return 1
    return orientation if isinstance(orientation, int) else 1


def _eight_bits(image: Image.Image, bits: int) -> Image.Image:
    """Scale gray levels of up to 16 bits to 8 bits; Pillow's own conversion would clip them."""
    levels, white = np.asarray(image), (1 << bits) - 1
    low, high = levels.min(), levels.max()
    # Integers of 32 bits are treated as 16 bits, unless the image would be nearly black.
    is_dark = image.mode == "I" and 0 < high <= 255
    if image.mode == "F" or low < 0 or high > white or is_dark:
        raise DataError(
            f"has gray levels from {low:g} to {high:g} without a known white level; save it with 8 "
            "or 16 bits"
        )
    scaled = (255 * levels.astype(np.uint32) + white // 2) // white
    return Image.fromarray(scaled.astype(np.uint8))
