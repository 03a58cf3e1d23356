"""Uploaded photos and drawings, and their conversion to inputs of a model."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image

from alfa.data import draw, load_photo, read_header, read_strokes, thumbnail_of
from alfa.errors import DataError
from alfa.estimator import PreparedImages

if TYPE_CHECKING:
    from alfa.serve._model import Model

# Characters of a file name.
_MAX_NAME = 80
# The longest side of a thumbnail; the side and the bytes of a drawing.
_THUMBNAIL_SIDE, _DRAWING_SIDE, _DRAWING_BYTES = 320, 128, 1 << 20
# Decoders of these formats need little more memory than four bytes per pixel. The others keep a
# second copy or wider numbers, so their images must be smaller.
_LEAN_FORMATS = ("JPEG", "MPO", "PNG", "GIF", "BMP", "PPM", "TGA")
_MAX_OTHER_PIXELS = 30_000_000


@dataclass(frozen=True, eq=False)
class Upload:
    """A file of a request: a photo, or the strokes of a drawing as JSON."""

    name: str
    content: bytes
    is_drawing: bool = False


@dataclass(frozen=True, eq=False)
class Decoded:
    """A photo as its file, its thumbnail, and the pixels that a model takes.

    Attributes:
        upload: the original file.
        width: upright width in pixels.
        height: upright height in pixels.
        thumbnail: a small JPEG or PNG file without metadata.
        levels: uint8 ``[channel, height, width]``.
        note: a remark if the photo is smaller than the model's input.
    """

    upload: Upload
    width: int
    height: int
    thumbnail: bytes
    levels: np.ndarray
    note: str | None


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo or a drawing of a session; `images` is the input of the session's model."""

    id: str
    upload: Upload
    width: int
    height: int
    thumbnail: bytes
    images: PreparedImages
    note: str | None
    usefulness: float | None = None

    @property
    def name(self) -> str:
        return self.upload.name

    @property
    def kind(self) -> Literal["photo", "drawing"]:
        return "drawing" if self.upload.is_drawing else "photo"

    @property
    def num_bytes(self) -> int:
        return len(self.upload.content) + len(self.thumbnail)

    def file(self, *, dark: bool | None = None) -> bytes:
        """Return the original file, or a drawing in the style of a model."""
        if not self.upload.is_drawing:
            return self.upload.content
        return _rendered(self.upload.content, dark=dark is not False)


def decode_upload(upload: Upload, model: Model, *, side_pixels: int) -> Decoded:
    """Decode a file; raise a DataError, which does not name the file, if that is impossible.

    It needs at most about 400 MB of memory.
    """
    if upload.is_drawing:
        return _decode_drawing(upload, model)
    header, image_format = read_header(upload.content), model.image_format
    size = f"has {header.width:,} x {header.height:,} pixels"
    if max(header.width, header.height) > side_pixels:
        raise DataError(f"{size}, but a side may have at most {side_pixels:,}; resize it")
    is_lean = header.format in _LEAN_FORMATS
    if not is_lean and header.width * header.height > _MAX_OTHER_PIXELS:
        raise DataError(f"{size}, more than {_MAX_OTHER_PIXELS:,}; resize it, or save it as JPEG")
    loaded = load_photo(upload.content, size=image_format.shape[1:], crop=image_format.crop)
    levels, changes = image_format.decode_opened(loaded)
    note = next((change for change in changes if change.startswith("is smaller")), None)
    thumbnail = thumbnail_of(loaded, side=_THUMBNAIL_SIDE)
    return Decoded(upload, header.width, header.height, thumbnail, levels, note)


def _decode_drawing(upload: Upload, model: Model) -> Decoded:
    if model.dark_ink is None:
        raise DataError("is a drawing, but this model takes photos; choose a model for drawings")
    if len(upload.content) > _DRAWING_BYTES:
        raise DataError("is a drawing of more than 1 MB; draw fewer lines")
    _, height, width = model.image_format.shape
    strokes = read_strokes(upload.content)
    pixels = draw(strokes, size=max(height, width), dark=model.dark_ink)
    levels, _ = model.image_format.decode(pixels)
    thumbnail = _rendered(upload.content, dark=True)
    return Decoded(upload, _DRAWING_SIDE, _DRAWING_SIDE, thumbnail, levels, None)


def _rendered(strokes: bytes, *, dark: bool) -> bytes:
    buffer = io.BytesIO()
    pixels = draw(read_strokes(strokes), size=_DRAWING_SIDE, dark=dark)
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def media_type(content: bytes) -> str:
    """Return the media type of an image file."""
    return Image.MIME.get(read_header(content).format, "application/octet-stream")


def clean_name(name: str) -> str:
    """Return the last part of a file name, shortened and without control characters."""
    last = Path(name.replace("\\", "/")).name
    plain = "".join(c if c.isprintable() else "_" for c in last).strip()
    # The name ".." would be a folder in saved examples.
    plain = plain if plain.strip(". ") else "photo"
    is_long = len(plain) > _MAX_NAME
    return f"{plain[: _MAX_NAME - 10]}…{plain[-9:]}" if is_long else plain
