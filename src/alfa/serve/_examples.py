"""Sets of examples as zip files with one folder of PNGs for each class."""

import io
import zipfile
from collections.abc import Sequence

import numpy as np

from alfa.data import read_zip
from alfa.errors import AlfaError, DataError
from alfa.serve import _limits as limits
from alfa.serve._model import Model
from alfa.serve._session import ExampleClass, encode_image, validate_name

# With a constant date, the same examples give the same file.
_DATE = (1980, 1, 1, 0, 0, 0)
# The number of hidden files in a zip that are skipped.
_MAX_HIDDEN = 100


def pack_examples(classes: Sequence[ExampleClass]) -> bytes:
    """Write the examples of all classes to a zip; empty classes are omitted."""
    buffer = io.BytesIO()
    # PNGs are already compressed.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for each in classes:
            for number, example in enumerate(each.examples, start=1):
                info = zipfile.ZipInfo(f"{each.name}/{number:03d}.png", _DATE)
                file.writestr(info, encode_image(example.pixels, "png"))
    return buffer.getvalue()


def unpack_examples(
    content: bytes, *, name: str, model: Model
) -> list[tuple[str, list[np.ndarray]]]:
    """Read class names and images from a zip of class folders, at any depth.

    Error messages contain the name of the zip.
    """

    def rejected(reason: str) -> DataError:
        return DataError(f"{name} is refused: {reason}")

    images: dict[str, list[np.ndarray]] = {}
    names: dict[str, str] = {}
    total = 0
    files = read_zip(
        content, name=name, max_files=limits.MAX_IMAGES + _MAX_HIDDEN, max_bytes=limits.MAX_UNPACKED
    )
    for path, file in files:
        *folders, last = path.split("/")
        if last.startswith(".") or "__MACOSX" in folders:
            continue
        if not folders:
            raise rejected(
                f"“{path}” is not in a class folder; put the pictures of each class into a folder "
                "with the name of the class."
            )
        folder = folders[-1]
        if folder not in names:
            try:
                names[folder] = validate_name(folder, names.values())
            except AlfaError as error:
                raise rejected(f"the folder “{folder}”: {error}") from None
            images[folder] = []
        total += 1
        if len(images[folder]) >= limits.MAX_PER_CLASS or total > limits.MAX_IMAGES:
            raise rejected(
                f"it has more than {limits.MAX_PER_CLASS} pictures in a class, or more than "
                f"{limits.MAX_IMAGES} in total."
            )
        if len(file) > limits.MAX_FILE:
            raise rejected(f"“{path}” is too large.")
        try:
            images[folder].append(model.read(file))
        except DataError as error:
            raise rejected(f"“{path}” {error}.") from None
    if not images:
        raise rejected("it contains no pictures.")
    if len(images) > model.max_classes:
        raise rejected(
            f"it has {len(images)} classes, but the model supports at most {model.max_classes}."
        )
    return [(names[folder], images[folder]) for folder in images]
