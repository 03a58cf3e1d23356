"""Decode image files and arrays to pixels of one size and number of channels."""

from __future__ import annotations

import contextlib
import functools
import io
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from alfa.errors import DataError

# An image that declares more pixels is taken for a bomb: it is small on disk and fills the memory.
MAX_PIXELS = 64_000_000
# As large as that many pixels can be, of 16 bits and four channels, without compression.
MAX_BYTES = 8 * MAX_PIXELS + 10_000_000
# Pixels only: some of Pillow's other formats are programs (EPS runs Ghostscript) or drawings.
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "MPO", "JPEG2000", "PPM", "TGA", "TIFF", "AVIF")
_NAMES = {"1": "1-bit", "L": "grey", "P": "palette"}


def decode(
    content: bytes | np.ndarray, *, size: int | tuple[int, int] | None, num_channels: int
) -> tuple[np.ndarray, list[str]]:
    """Decode one image, and bring it to the size and the channels of a dataset.

    An image of another shape is squashed, as the published datasets were; one that has the size
    already keeps every pixel.

    Args:
        content: an image file, or pixels, uint8 ``[height, width]`` or
            ``[height, width, channel]``.
        size: the side that is wanted, or height and width; None for the image's own.
        num_channels: 3, or 1 for grey.

    Returns:
        Pixels, uint8 ``[channel, height, width]``, and what was done to them beyond a new size.

    Raises:
        DataError: it cannot be decoded; the text says why, without the name of the image.
    """
    wanted = (size, size) if isinstance(size, int) else size
    if not isinstance(content, bytes) and _fits(content, wanted, num_channels):
        channels_first = content.reshape(*content.shape[:2], num_channels).transpose(2, 0, 1)
        return np.ascontiguousarray(channels_first), []
    with decoding_errors():
        image = load_image(content) if isinstance(content, bytes) else _from_pixels(content)
        return _fitted(image, wanted, num_channels)


def decode_opened(
    image: Image.Image, *, size: tuple[int, int], num_channels: int
) -> tuple[np.ndarray, list[str]]:
    """Like `decode`, of an image that the caller has opened; it is not changed.

    Args:
        image: of any mode; of several frames, the current one.
        size: height and width of the result.
        num_channels: 3, or 1 for grey.

    Raises:
        DataError: it cannot be decoded; the text says why, without the name of the image.
    """
    with decoding_errors():
        _check_size(image.size)
        image.load()
        return _fitted(image, size, num_channels)


def _fitted(
    image: Image.Image, size: tuple[int, int] | None, num_channels: int
) -> tuple[np.ndarray, list[str]]:
    image, changes = _converted(image, "L" if num_channels == 1 else "RGB")
    height, width = size or (image.height, image.width)
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.LANCZOS)
    pixels = np.asarray(image).reshape(height, width, num_channels)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)), changes


def thumbnail(content: bytes, *, side: int) -> bytes:
    """A small image for people: upright, in colors, and without metadata.

    Args:
        content: an image file.
        side: of the square that it must fit into; an image that does so keeps every pixel.

    Returns:
        A PNG file of an image that fits, and a JPEG file of one that was made smaller.

    Raises:
        DataError: it cannot be decoded; the text says why, without the name of the image.
    """
    with decoding_errors():
        image = open_image(content)
        fits = max(image.size) <= side
        # Of a large photo only every eighth pixel or so need be decoded.
        image.draft("RGB", (2 * side, 2 * side))
        small, _ = _converted(image, "RGB")
        small.thumbnail((side, side))
        # A new image: what else is in the file, such as where a photo was taken, stays there.
        small = Image.fromarray(np.asarray(small))
        buffer = io.BytesIO()
        small.save(buffer, "PNG" if fits else "JPEG", optimize=True)
    return buffer.getvalue()


@contextlib.contextmanager
def decoding_errors() -> Iterator[None]:
    """Turn all errors of Pillow into a DataError, whose text does not name the image."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(
            f"declares more than the {MAX_PIXELS:,} pixels that are allowed; it may be an image "
            "bomb, so make it smaller"
        ) from None
    # What a damaged file makes Pillow raise depends on where the damage is.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"is damaged or cut off ({reason})") from None


def _fits(pixels: np.ndarray, size: tuple[int, int] | None, num_channels: int) -> bool:
    """Whether pixels in memory need no change, which saves most of the time."""
    if size is None:
        return False
    grey = num_channels == 1 and pixels.shape == size
    return pixels.dtype == np.uint8 and (grey or pixels.shape == (*size, num_channels))


@functools.cache
def _formats() -> tuple[str, ...]:
    """The formats above that this build of Pillow supports."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def read_image_file(path: Path | str) -> bytes:
    """The content of an image file.

    Raises:
        DataError: it is too large.
        OSError: it cannot be read.
    """
    size = os.stat(path).st_size
    if size > MAX_BYTES:
        raise DataError(
            f"has {size / 1e6:,.0f} MB, more than the {MAX_BYTES / 1e6:,.0f} that are allowed, and "
            "is hardly an image"
        )
    return Path(path).read_bytes()


def load_image(content: bytes) -> Image.Image:
    """An image file, fully loaded."""
    image = open_image(content)
    image.load()
    return image


def open_image(content: bytes) -> Image.Image:
    """An image file whose size and mode are known, and whose pixels are loaded on first use.

    Raises:
        DataError: it is no image, or has too many pixels.
    """
    if not content:
        raise DataError("is an empty file")
    try:
        image = Image.open(io.BytesIO(content), formats=_formats())
    except UnidentifiedImageError:
        raise DataError("is not an image, or of a format that is not read") from None
    _check_size(image.size)
    return image


def _from_pixels(pixels: np.ndarray) -> Image.Image:
    shape = pixels.shape
    known = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 2, 3, 4))
    if pixels.dtype != np.uint8 or not known:
        raise DataError(
            f"has pixels of {pixels.dtype} {list(shape)}, but must have uint8 [height, width] or "
            "[height, width, channel]"
        )
    _check_size((shape[1], shape[0]))
    return Image.fromarray(pixels[:, :, 0] if shape[2:] == (1,) else pixels)


def _check_size(size: tuple[int, int]) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise DataError(f"has no pixels ({width} x {height})")
    if width * height > MAX_PIXELS:
        raise DataError(
            f"declares {width} x {height} pixels, more than the {MAX_PIXELS:,} that are allowed; "
            "it may be an image bomb, so make it smaller"
        )


def _converted(image: Image.Image, mode: str) -> tuple[Image.Image, list[str]]:
    """The image in a mode, ``"L"`` or ``"RGB"``, and what had to be done."""
    changes = []
    bits = _declared_bits(image)
    if getattr(image, "is_animated", False):
        # An image that the caller has opened may show another frame.
        which = "one" if image.tell() else "the first"
        changes.append(f"{which} frame of several taken")
    if _orientation(image) in range(2, 9):
        image = ImageOps.exif_transpose(image)
        changes.append("turned as its EXIF orientation says")
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = _eight_bits(image, bits)
        changes.append(f"{bits} bits scaled to 8")
    if image.has_transparency_data:
        image, change = _on_white(image)
        changes.append(change)
    if image.mode != mode:
        # A 1-bit image has the same pixels in 8 bits.
        if (image.mode, mode) != ("1", "L"):
            before, after = (_NAMES.get(name, name) for name in (image.mode, mode))
            changes.append(f"{before} converted to {after}")
        image = image.convert(mode)
    return image, changes


def _on_white(image: Image.Image) -> tuple[Image.Image, str]:
    before = image.mode
    # By way of RGBA, because only that is composited correctly for every kind of transparency.
    image = image.convert("RGBA")
    opaque = image.getchannel("A").getextrema()[0] == 255
    white = Image.new("RGBA", image.size, "white")
    mode = "L" if before in ("1", "L", "LA", "La") else "RGB"
    image = Image.alpha_composite(white, image).convert(mode)
    change = f"{before} converted to {_NAMES.get(mode, mode)}"
    return image, change if opaque else "transparency put on white"


def _orientation(image: Image.Image) -> int:
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    # Good pixels may have EXIF data that is damaged in any way.
    except Exception:
        return 1
    return orientation if isinstance(orientation, int) else 1


def _declared_bits(image: Image.Image) -> int:
    """Of a grey level, as far as the file says so; 16 otherwise."""
    # Only a TIFF has such tags; one with colours has several numbers of bits.
    declared = getattr(image, "tag_v2", {}).get(ExifTags.Base.BitsPerSample)
    return next((bits for bits in range(9, 16) if declared == (bits,)), 16)


def _eight_bits(image: Image.Image, bits: int) -> Image.Image:
    """Grey levels of up to 16 bits on the scale of 8; Pillow's own conversion would clip them."""
    levels, white = np.asarray(image), (1 << bits) - 1
    low, high = levels.min(), levels.max()
    # Numbers of 32 bits are those of 16, unless all of them would be nearly black.
    is_dark = image.mode == "I" and 0 < high <= 255
    if image.mode == "F" or low < 0 or high > white or is_dark:
        raise DataError(
            f"has grey levels from {low:g} to {high:g}, of which nobody knows what is white; save "
            "it with 8 or 16 bits"
        )
    scaled = (255 * levels.astype(np.uint32) + white // 2) // white
    return Image.fromarray(scaled.astype(np.uint8))
