"""Readers of Meta-Dataset sources that their publishers do not store in class folders."""

import functools
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from alfa.data._decode import decoding_errors, load_image, read_image_file
from alfa.data.sources._base import Item, Problem
from alfa.data.sources._class_folders import FoundClasses, list_files
from alfa.data.sources._published import ClassList
from alfa.errors import DataError

Box = tuple[float, float, float, float]
"""Left, top, right, and bottom in pixels."""

# Meta-Dataset enlarges the boxes of MSCOCO by this factor.
_BOX_SCALE = 1.2
_SIDE = 28
_MISSING = "the image is missing"


def read_aircraft(folder: Path) -> FoundClasses:
    """Read FGVC-Aircraft: lists of variants and boxes beside the folder of the images."""
    boxes_file = folder / "images_box.txt"
    lists = [folder / f"images_variant_{part}.txt" for part in ("trainval", "test")]
    lists = [path for path in lists if path.is_file()]
    if not boxes_file.is_file() or not lists:
        return FoundClasses()
    boxes = {name: _parse_box(rest, boxes_file) for name, rest in _lines(boxes_file)}
    classes: dict[str, list[Item]] = defaultdict(list)
    problems = []
    for name, variant in sorted(line for path in lists for line in _lines(path)):
        path = folder / "images" / f"{name}.jpg"
        label = f"{variant}/{name}.jpg"
        if name not in boxes:
            problems.append(Problem(label, f"{boxes_file.name} has no box for this image"))
        elif not path.is_file():
            problems.append(Problem(label, _MISSING))
        else:
            left, top, right, bottom = boxes[name]
            # Pixel numbers start at 1, and the box includes the last pixel.
            box = left - 1, top - 1, right, bottom
            classes[variant].append(Item(label, partial(_crop, str(path), box)))
    return FoundClasses.of(classes, problems)


def read_quick_draw(folder: Path, classes: ClassList, limit: int) -> FoundClasses:
    """Read Quick, Draw!: the first `limit` drawings of an array of bitmaps for each class."""
    found: dict[str, list[Item]] = {}
    problems = []
    for file_name, path in list_files(folder).items() if folder.is_dir() else ():
        # In a copy of the publisher's bucket, the file name contains the whole path.
        stem = file_name.removesuffix(".npy").rpartition("%2F")[2].replace("%20", " ")
        name = classes.name(stem) if file_name.endswith(".npy") else None
        if name is None:
            continue
        try:
            images = _map_array(str(path))
        # numpy raises errors of Python's parser for a damaged header.
        except (OSError, ValueError, EOFError, SyntaxError, TokenError) as error:
            problems.append(Problem(name, f"{file_name} cannot be read ({error})"))
            continue
        shape, dtype = images.shape, images.dtype
        if dtype != np.uint8 or len(shape) != 2 or shape[1] != _SIDE**2:
            what = f"{file_name} must be uint8 [drawing, {_SIDE**2}], got {dtype} {list(shape)}"
            problems.append(Problem(name, what))
            continue
        found[name] = [
            Item(f"{name}/{number}", partial(_read_drawing, str(path), number))
            for number in range(min(limit, shape[0]))
        ]
    return FoundClasses.of(found, problems)


def read_fungi(folder: Path) -> FoundClasses:
    """Read FGVCx Fungi: lists of images and their classes, for training and validation."""
    classes: dict[str, list[Item]] = defaultdict(list)
    problems = []
    for path in (folder / "train.json", folder / "val.json"):
        images, labels = _read_annotations(path) if path.is_file() else ({}, {})
        for key, file_name in images.items():
            if key not in labels:
                problems.append(Problem(file_name, f"{path.name} has no class for this image"))
            elif not (folder / file_name).is_file():
                problems.append(Problem(file_name, _MISSING))
            else:
                classes[labels[key]].append(Item.of_file(file_name, folder / file_name))
    return FoundClasses.of(classes, problems)


def _read_annotations(path: Path) -> tuple[dict[Any, str], dict[Any, str]]:
    """Return the file names of images in the order of their ids, and their classes, by id."""
    content = _read_json(path, "images", "annotations", "categories")
    try:
        names = {c["id"]: f"{c['id']:04d}.{c['name']}" for c in content["categories"]}
        images = {image["id"]: str(image["file_name"]) for image in content["images"]}
        labels = {a["image_id"]: names[a["category_id"]] for a in content["annotations"]}
        # Raises if some ids are numbers and others are strings.
        images = dict(sorted(images.items()))
    except (KeyError, TypeError, ValueError) as error:
        raise _invalid_entry(path, error) from None
    return images, labels


def read_flowers(folder: Path) -> FoundClasses:
    """Read VGG Flower: all images in one folder, and their classes in a MATLAB file."""
    labels_file, images = folder / "imagelabels.mat", folder / "jpg"
    if not labels_file.is_file() or not images.is_dir():
        return FoundClasses()
    classes: dict[str, list[Item]] = defaultdict(list)
    problems = []
    for number, label in enumerate(_read_matlab_labels(labels_file), start=1):
        name = f"jpg/image_{number:05d}.jpg"
        if (folder / name).is_file():
            classes[str(label)].append(Item.of_file(name, folder / name))
        else:
            problems.append(Problem(name, _MISSING))
    return FoundClasses.of(classes, problems)


def _read_matlab_labels(path: Path) -> Sequence[int]:
    from scipy.io import loadmat

    try:
        content = loadmat(path)
        (labels,) = (value for key, value in content.items() if not key.startswith("__"))
        return [int(label) for label in labels.ravel()]
    # A damaged file can raise almost any error.
    except Exception as error:
        raise DataError(f"{path} is not a label file ({error}); download it again.") from None


def read_mscoco(folder: Path) -> FoundClasses:
    """Read MSCOCO: every box of an object in the training photos of 2017."""
    places = (folder / "annotations", folder)
    lists = [path for place in places if (path := place / "instances_train2017.json").is_file()]
    images = folder / "train2017"
    if not lists or not images.is_dir():
        return FoundClasses()
    content = _read_json(lists[0], "annotations", "categories")
    classes: dict[str, list[Item]] = defaultdict(list)
    existing = set(list_files(images))
    missing: set[str] = set()
    try:
        names = {c["id"]: str(c["name"]) for c in content["categories"]}
        for number, entry in enumerate(content["annotations"]):
            file_name = f"{entry['image_id']:012d}.jpg"
            name = names[entry["category_id"]]
            if file_name not in existing:
                missing.add(file_name)
                continue
            left, top, width, height = (float(value) for value in entry["bbox"])
            box = left, top, left + width, top + height
            read = partial(_crop_enlarged, str(images / file_name), box)
            classes[name].append(Item(f"{name}/{file_name} box {number}", read))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _invalid_entry(lists[0], error) from None
    problems = [Problem(f"train2017/{name}", _MISSING) for name in sorted(missing)]
    return FoundClasses.of(classes, problems)


def _invalid_entry(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} has an invalid entry ({error!r}); download it again.")


def _read_json(path: Path, *keys: str) -> Mapping[str, Any]:
    def drop_outlines(entry: dict[str, Any]) -> dict[str, Any]:
        # Unused outlines of objects fill most of such a file.
        entry.pop("segmentation", None)
        return entry

    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_hook=drop_outlines)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({error}).") from None
    if not isinstance(content, dict) or not all(isinstance(content.get(k), list) for k in keys):
        raise DataError(f"{path} must have the lists {', '.join(keys)}; download it again.")
    return content


def _lines(path: Path) -> list[tuple[str, str]]:
    """Split every line into its first word and the rest."""
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); download it again.") from None
    lines = [line.strip().partition(" ") for line in text.splitlines()]
    return [(name, rest.strip()) for name, _, rest in lines if name]


def _parse_box(text: str, path: Path) -> Box:
    try:
        left, top, right, bottom = map(float, text.split())
    except ValueError:
        raise DataError(
            f"{path} must have a name and four numbers in each line, got {text!r} after a name."
        ) from None
    return left, top, right, bottom


def _crop(path: str, box: Box) -> np.ndarray:
    content = read_image_file(path)
    with decoding_errors():
        image = load_image(content).convert("RGB")
    _check_finite(box)
    left, top = max(0, int(box[0])), max(0, int(box[1]))
    right, bottom = min(image.width, int(box[2])), min(image.height, int(box[3]))
    if right <= left or bottom <= top:
        raise DataError(f"the box {list(box)} contains no pixels of the image")
    return np.asarray(image.crop((left, top, right, bottom)))


def _crop_enlarged(path: str, box: Box) -> np.ndarray:
    """Enlarge a box, whose coordinates refer to the centers of pixels, and crop it."""
    left, top, right, bottom = box
    more_width, more_height = ((_BOX_SCALE - 1) / 2 * side for side in (right - left, bottom - top))
    larger = left - more_width, top - more_height, right + more_width, bottom + more_height
    _check_finite(larger)
    left, top, right, bottom = (round(side - 0.5) for side in larger)
    return _crop(path, (left, top, right + 1, bottom + 1))


def _check_finite(box: Box) -> None:
    if not all(map(math.isfinite, box)):
        raise DataError(f"the box {list(box)} must consist of finite numbers")


@functools.lru_cache(maxsize=16)
def _map_array(path: str) -> np.ndarray:
    # Unlike `np.load`, this function closes the file if it is an archive.
    return np.asarray(np.lib.format.open_memmap(path, mode="r"))


def _read_drawing(path: str, number: int) -> np.ndarray:
    return np.array(_map_array(path)[number]).reshape(_SIDE, _SIDE)
