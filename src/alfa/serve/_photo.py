"""Uploaded photos and drawings, and their conversion to inputs of a model."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image

from alfa.data import load_photo, read_header, thumbnail_of
from alfa.errors import DataError
from alfa.serve import _limits as limits
from alfa.serve._drawing import draw, read_strokes

if TYPE_CHECKING:
    from alfa.serve._model import ServedModel

# The side of a drawing that the page shows and saves.
_DRAWING_SIDE = 128
_DRAWING_BYTES = 1 << 20
# Decoders of these formats need little more memory than four bytes per pixel. The others keep a
# second copy or wider numbers, so their images must be smaller.
_LEAN_FORMATS = ("JPEG", "MPO", "PNG", "GIF", "BMP", "PPM", "TGA")
_MAX_OTHER_PIXELS = 30_000_000


@dataclass(frozen=True, eq=False)
class Upload:
    """A file of a request."""

    name: str
    content: bytes
    is_drawing: bool = False


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo or a drawing of a session.

    Attributes:
        upload: the original file, or the strokes of a drawing.
        width: upright width in pixels.
        height: upright height in pixels.
        media_type: media type of `image`.
        image: the original file, or the rendered drawing.
        thumbnail: a small JPEG or PNG file without metadata.
        id: identifier in its session, which never changes.
    """

    upload: Upload
    width: int
    height: int
    media_type: str
    image: bytes
    thumbnail: bytes
    id: str = ""

    @property
    def name(self) -> str:
        return self.upload.name

    @property
    def kind(self) -> Literal["photo", "drawing"]:
        return "drawing" if self.upload.is_drawing else "photo"

    @property
    def num_bytes(self) -> int:
        return len(self.upload.content) + len(self.thumbnail)

    def with_id(self, photo_id: str) -> Photo:
        return replace(self, id=photo_id)

    def file(self, *, dark: bool | None) -> bytes:
        """Return the file that a user saves: the original, or a drawing in the model's style."""
        if not self.upload.is_drawing or dark is None or dark:
            return self.image
        return _rendered(self.upload.content, dark=False)


@dataclass(frozen=True, eq=False)
class Decoded:
    """A photo, and its pixels as the model takes them.

    Attributes:
        photo: the photo.
        levels: uint8 ``[channel, height, width]``.
        note: a remark if the photo is smaller than the model's input.
    """

    photo: Photo
    levels: np.ndarray
    note: str | None


def decode_upload(upload: Upload, model: ServedModel, *, side_pixels: int) -> Decoded:
    """Decode a file; raise a DataError, which does not name the file, if that is impossible.

    It needs at most about 400 MB of memory.
    """
    if upload.is_drawing:
        return _decode_drawing(upload, model)
    header = read_header(upload.content)
    _check_header(header.format, header.width, header.height, side_pixels)
    image_format = model.image_format
    loaded = load_photo(upload.content, size=image_format.shape[1:], crop=image_format.crop)
    levels, changes = image_format.decode_opened(loaded)
    note = next((change for change in changes if change.startswith("is smaller")), None)
    thumbnail = thumbnail_of(loaded, side=limits.THUMBNAIL_SIDE)
    media_type = Image.MIME.get(header.format, "application/octet-stream")
    size = header.width, header.height
    return Decoded(Photo(upload, *size, media_type, upload.content, thumbnail), levels, note)


def _check_header(kind: str, width: int, height: int, side_pixels: int) -> None:
    if max(width, height) > side_pixels:
        raise DataError(
            f"has {width:,} x {height:,} pixels, but a side may have at most {side_pixels:,}; "
            "resize it"
        )
    if kind not in _LEAN_FORMATS and width * height > _MAX_OTHER_PIXELS:
        raise DataError(
            f"has {width:,} x {height:,} pixels, more than {_MAX_OTHER_PIXELS:,}; resize it, or "
            "save it as JPEG"
        )


def _decode_drawing(upload: Upload, model: ServedModel) -> Decoded:
    if model.dark_ink is None:
        raise DataError("is a drawing, but this model takes photos; choose a model for drawings")
    if len(upload.content) > _DRAWING_BYTES:
        raise DataError("is a drawing of more than 1 MB; draw fewer lines")
    strokes = read_strokes(upload.content)
    _, height, width = model.image_format.shape
    pixels = draw(strokes, size=max(height, width), dark=model.dark_ink)
    levels, _ = model.image_format.decode(pixels)
    image = _rendered(upload.content, dark=True)
    photo = Photo(upload, _DRAWING_SIDE, _DRAWING_SIDE, "image/png", image, image)
    return Decoded(photo, levels, None)


def _rendered(strokes: bytes, *, dark: bool) -> bytes:
    buffer = io.BytesIO()
    pixels = draw(read_strokes(strokes), size=_DRAWING_SIDE, dark=dark)
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def clean_name(name: str) -> str:
    """Return the last part of a file name, shortened and without control characters."""
    last = Path(name.replace("\\", "/")).name
    plain = "".join(c if c.isprintable() else "_" for c in last).strip() or "photo"
    limit = limits.MAX_FILE_NAME
    return plain if len(plain) <= limit else f"{plain[: limit - 10]}…{plain[-9:]}"
