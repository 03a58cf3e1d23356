"""A set of examples as a file: a zip of class folders with PNGs."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence

import numpy as np

from alfa.data._archives import read_zip
from alfa.errors import AlfaError, DataError
from alfa.serve._limits import MAX_FILE, MAX_PER_CLASS, MAX_PICTURES, MAX_UNPACKED
from alfa.serve._model import Model
from alfa.serve._session import Class, as_png, checked_name

# So that the same examples give the same file.
_DATE = (1980, 1, 1, 0, 0, 0)
# What systems leave in a zip beside the pictures.
_NOT_OURS = ("__MACOSX",)
# Files that may lie beside the pictures; they are skipped.
_MAX_OTHERS = 100

Examples = list[tuple[str, list[np.ndarray]]]
"""The name of each class, and its pictures as the model sees them."""


def packed(classes: Sequence[Class]) -> bytes:
    """Classes as a zip: a folder of PNGs for each that has any, in their order."""
    buffer = io.BytesIO()
    # PNGs are compressed already.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for each in classes:
            for number, picture in enumerate(each.pictures, start=1):
                info = zipfile.ZipInfo(f"{each.name}/{number:03d}.png", _DATE)
                file.writestr(info, as_png(picture.pixels))
    return buffer.getvalue()


def unpacked(content: bytes, *, name: str, model: Model) -> Examples:
    """Read a zip of class folders, all of it or nothing.

    Pictures may be of any format and size that is read elsewhere, and the class folders may lie in
    another one.

    Args:
        content: the file.
        name: what it is called, for the sentence of an error.
        model: that is to learn from it.

    Raises:
        DataError: says in one sentence what is wrong with it.
    """
    found: dict[str, list[np.ndarray]] = {}
    names: dict[str, str] = {}
    num_pictures = 0
    files = read_zip(
        content, name=name, max_files=MAX_PICTURES + _MAX_OTHERS, max_bytes=MAX_UNPACKED
    )
    for path, file in files:
        *folders, last = path.split("/")
        if last.startswith(".") or any(part in _NOT_OURS for part in folders):
            continue
        if not folders:
            raise DataError(
                f"{name} is refused: “{path}” lies in no folder; put the pictures of each class "
                "into a folder that is called by it."
            )
        pictures = found.setdefault(_class_name(folders[-1], names, name), [])
        num_pictures += 1
        if len(pictures) >= MAX_PER_CLASS or num_pictures > MAX_PICTURES:
            raise DataError(
                f"{name} is refused: a class can have {MAX_PER_CLASS} pictures, and there can be "
                f"{MAX_PICTURES} in all."
            )
        try:
            if len(file) > MAX_FILE:
                raise DataError("is too large")
            pictures.append(model.read(file))
        except DataError as error:
            raise DataError(f"{name} is refused: “{path}” {error}.") from None
    if not found:
        raise DataError(f"{name} is refused: there are no pictures in it.")
    if len(found) > model.max_classes:
        raise DataError(
            f"{name} is refused: it has {len(found)} classes, but this model tells "
            f"{model.max_classes} apart."
        )
    return list(found.items())


def _class_name(folder: str, names: dict[str, str], name: str) -> str:
    """What the class of a folder is called, which may have less white space than the folder."""
    if folder not in names:
        try:
            names[folder] = checked_name(folder, names.values())
        except AlfaError as error:
            raise DataError(f"{name} is refused: the folder “{folder}”: {error}") from None
    return names[folder]
