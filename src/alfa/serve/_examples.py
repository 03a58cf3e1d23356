"""Saving and loading a set of examples: a zip of class folders with PNGs."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence

import numpy as np

from alfa.data import read_zip
from alfa.errors import AlfaError, DataError
from alfa.serve._limits import MAX_FILE, MAX_IMAGES, MAX_PER_CLASS, MAX_UNPACKED
from alfa.serve._model import Model
from alfa.serve._session import ExampleClass, as_png, validate_name

# A constant date gives the same file for the same examples.
_DATE = (1980, 1, 1, 0, 0, 0)
# Other files in the zip are skipped, up to this number.
_MAX_OTHERS = 100

Examples = list[tuple[str, list[np.ndarray]]]
"""The name of each class, and its images as the model's input."""


def pack_examples(classes: Sequence[ExampleClass]) -> bytes:
    """Save classes as a zip with a folder of PNGs for each that has images."""
    buffer = io.BytesIO()
    # PNGs are compressed already.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for each in classes:
            for number, example in enumerate(each.examples, start=1):
                info = zipfile.ZipInfo(f"{each.name}/{number:03d}.png", _DATE)
                file.writestr(info, as_png(example.pixels))
    return buffer.getvalue()


def unpack_examples(content: bytes, *, name: str, model: Model) -> Examples:
    """Read a zip of class folders, which may lie in another folder; all of it or nothing.

    Args:
        content: the file.
        name: of the file, for error messages.
        model: the served model.

    Raises:
        DataError: says in one sentence what is wrong with it.
    """
    found: dict[str, list[np.ndarray]] = {}
    names: dict[str, str] = {}
    num_images = 0
    files = read_zip(content, name=name, max_files=MAX_IMAGES + _MAX_OTHERS, max_bytes=MAX_UNPACKED)
    for path, file in files:
        *folders, last = path.split("/")
        if last.startswith(".") or "__MACOSX" in folders:
            continue
        if not folders:
            raise DataError(
                f"{name} is refused: “{path}” lies in no folder; put the pictures of each class "
                "into a folder that is called by it."
            )
        images = found.setdefault(_class_name(folders[-1], names, name), [])
        num_images += 1
        if len(images) >= MAX_PER_CLASS or num_images > MAX_IMAGES:
            raise DataError(
                f"{name} is refused: a class can have {MAX_PER_CLASS} pictures, and there can be "
                f"{MAX_IMAGES} in all."
            )
        try:
            if len(file) > MAX_FILE:
                raise DataError("is too large")
            images.append(model.read(file))
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
    if folder not in names:
        try:
            names[folder] = validate_name(folder, names.values())
        except AlfaError as error:
            raise DataError(f"{name} is refused: the folder “{folder}”: {error}") from None
    return names[folder]
