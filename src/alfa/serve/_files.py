"""Files that users save: examples, run folders, ONNX models, and predictions."""

from __future__ import annotations

import copy
import io
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
from PIL import Image

from alfa.data import read_zip
from alfa.errors import DataError
from alfa.estimator import PreparedImages
from alfa.export import make_onnx
from alfa.report.predictions import Prediction, predictions_csv
from alfa.serve._learned import Learned
from alfa.serve._model import Model
from alfa.serve._photo import Upload, clean_name
from alfa.serve._session import Session
from alfa.serve._state import PhotoClass, State

# With a constant date, the same examples give the same file.
_DATE = (1980, 1, 1, 0, 0, 0)
# The number of hidden files in a zip that are skipped.
_MAX_HIDDEN = 100
# The export compares the model with the classifier on this many examples.
_NUM_CHECKED = 10

_README = """\
This folder contains a run folder of alfa (`model`) and the examples of a classifier (`examples`).
The following command learns from the examples and classifies the photos in NEW_PHOTOS:

    alfa adapt model --support examples --predict NEW_PHOTOS --head auto
"""


@dataclass(frozen=True)
class Download:
    """A file to save, in parts."""

    name: str
    media_type: str
    parts: Iterable[bytes]


def save_examples(state: State, model: Model) -> Download:
    """Return a zip with the original files, in a folder for each class."""
    return Download("examples.zip", "application/zip", _zip(_example_files(state, model)))


def save_run(state: State, model: Model) -> Download:
    """Return a zip with the run folder, the examples, and the command that reproduces them."""

    def files() -> Iterator[tuple[str, bytes]]:
        yield "README.txt", _README.encode()
        root = model.run.path
        for path in sorted(root.rglob("*")):
            # Training states are large, and learning does not need them.
            if path.is_file() and (path.parent == root or path.name == "best.safetensors"):
                yield f"model/{path.relative_to(root).as_posix()}", path.read_bytes()
        for name, content in _example_files(state, model):
            yield f"examples/{name}", content

    return Download("classifier.zip", "application/zip", _zip(files()))


def save_onnx(learned: Learned, state: State) -> Download:
    """Return the classifier as an ONNX file with the current names of the classes."""
    named = copy.copy(learned.classifier)
    named.classes_ = np.array(_class_names(learned, state))
    thumbnails = [photo.thumbnail for photo in state.photos()][:_NUM_CHECKED]
    images = [Image.open(io.BytesIO(content)) for content in thumbnails]
    content = make_onnx(named, check_on=images).content
    return Download("model.onnx", "application/octet-stream", [content])


def save_predictions(learned: Learned, state: State) -> Download:
    """Return the predictions for the unlabeled photos as CSV."""
    names = _class_names(learned, state)
    images = PreparedImages.concatenate([photo.images for photo in state.unlabeled])
    found = learned.classifier.assess(images)
    rows = [
        Prediction(photo.name, names[int(label)], probabilities.tolist(), is_none=bool(is_none))
        for photo, label, probabilities, is_none in zip(
            state.unlabeled, found.labels, found.probabilities, found.is_none, strict=True
        )
    ]
    text = predictions_csv(rows, names)
    return Download("predictions.csv", "text/csv; charset=utf-8", [text.encode()])


def _class_names(learned: Learned, state: State) -> list[str]:
    names = {each.id: each.name for each in state.classes}
    return [names[class_id] for class_id in learned.class_ids]


def _example_files(state: State, model: Model) -> Iterator[tuple[str, bytes]]:
    for each in state.classes:
        taken: set[str] = set()
        for photo in each.examples:
            path = PurePath(photo.name)
            suffix = ".png" if photo.kind == "drawing" else path.suffix
            name, number = f"{path.stem}{suffix}", 2
            while name.casefold() in taken:
                name, number = f"{path.stem} {number}{suffix}", number + 1
            taken.add(name.casefold())
            yield f"{each.name}/{name}", photo.file(dark=model.dark_ink)


class _Parts(io.RawIOBase):
    """A file that keeps only the bytes that were written since the last call of `take`."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def _zip(files: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Yield a zip in parts, so that the whole file is never in memory."""
    parts = _Parts()
    # Images are already compressed.
    with zipfile.ZipFile(parts, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files:
            archive.writestr(zipfile.ZipInfo(name, _DATE), content)
            yield parts.take()
    yield parts.take()


def load_examples(upload: Upload, session: Session) -> list[tuple[str, list[Upload]]]:
    """Read class names and files from a zip of class folders, at any depth."""
    limits = session.limits
    found: dict[str, list[Upload]] = {}
    known: dict[str, PhotoClass] = {}
    options = {"max_files": limits.photos + _MAX_HIDDEN, "max_bytes": limits.zip_bytes}
    for path, content in read_zip(upload.content, name=upload.name, **options):
        *folders, last = path.split("/")
        if last.startswith(".") or "__MACOSX" in folders:
            continue
        if not folders:
            raise DataError(
                f"{upload.name} is refused: “{path}” is not in a class folder; put the photos of "
                "each class into a folder with the name of the class."
            )
        folder = folders[-1]
        if folder not in known:
            known[folder] = PhotoClass("", session.valid_name(folder, known.values()))
        found.setdefault(known[folder].name, []).append(Upload(clean_name(last), content))
    if not found or len(found) > limits.classes:
        raise DataError(
            f"{upload.name} is refused: it must have 1 to {limits.classes} folders of photos, got "
            f"{len(found)}."
        )
    return list(found.items())
