"""Layouts in which the names of classes are not those of folders."""

from __future__ import annotations

import functools
import json
import math
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from alfa.data._decode import opened, told
from alfa.data.sources._base import Item, Problem
from alfa.data.sources._folders import ClassFound, Found, files
from alfa.data.sources._published import ClassList
from alfa.errors import DataError

Box = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""

# By how much Meta-Dataset enlarges the boxes of MSCOCO.
_BOX_SCALE = 1.2
_SIDE = 28


def read_aircraft(folder: Path) -> Found:
    """FGVC-Aircraft: lists of variants and of boxes beside the folder of the images."""
    boxes_file = folder / "images_box.txt"
    lists = [
        path
        for part in ("trainval", "test")
        if (path := folder / f"images_variant_{part}.txt").is_file()
    ]
    if not boxes_file.is_file() or not lists:
        return Found()
    boxes = {name: _numbers(rest, boxes_file) for name, rest in _lines(boxes_file)}
    classes: dict[str, list[Item]] = defaultdict(list)
    problems = []
    for name, variant in sorted(line for path in lists for line in _lines(path)):
        path = folder / "images" / f"{name}.jpg"
        label = f"{variant}/{name}.jpg"
        if name not in boxes:
            problems.append(Problem(label, f"{boxes_file.name} has no box for this image"))
        elif not path.is_file():
            problems.append(Problem(label, "the image is not there"))
        else:
            left, top, right, bottom = boxes[name]
            # The first pixel is called 1, and the last one belongs to the box.
            box = left - 1, top - 1, right, bottom
            classes[variant].append(Item(label, partial(_cut_out, str(path), box)))
    return Found([ClassFound(name, items) for name, items in classes.items()], problems)


def read_quick_draw(folder: Path, classes: ClassList, limit: int) -> Found:
    """Quick, Draw!: one array of bitmaps for each class.

    Args:
        folder: that holds them.
        classes: the list of classes.
        limit: drawings that are taken of a class.
    """
    if not folder.is_dir():
        return Found()
    found, problems = [], []
    for file_name, path in files(folder).items():
        # A copy of the publisher's bucket has the whole path in the name.
        stem = file_name.removesuffix(".npy").rpartition("%2F")[2].replace("%20", " ")
        name = classes.name(stem) if file_name.endswith(".npy") else None
        if name is None:
            continue
        try:
            shape, dtype = (images := _mapped(str(path))).shape, images.dtype
        # Of a damaged header, numpy also says what Python thinks of it.
        except (OSError, ValueError, EOFError, SyntaxError, TokenError) as error:
            problems.append(Problem(name, f"{file_name} cannot be read ({error})"))
            continue
        if dtype != np.uint8 or len(shape) != 2 or shape[1] != _SIDE**2:
            what = f"{file_name} is {dtype} {list(shape)}, but must be uint8 [drawing, {_SIDE**2}]"
            problems.append(Problem(name, what))
            continue
        count = min(limit, shape[0])
        items = [
            Item(f"{name}/{number}", partial(_drawing, str(path), number))
            for number in range(count)
        ]
        found.append(ClassFound(name, items))
    return Found(found, problems)


def read_fungi(folder: Path) -> Found:
    """FGVCx Fungi: lists of images and their classes, of what was for training and validation."""
    lists = [path for part in ("train", "val") if (path := folder / f"{part}.json").is_file()]
    if not lists:
        return Found()
    classes: dict[str, list[Item]] = defaultdict(list)
    problems = []
    for path in lists:
        images, labels = _annotated(path)
        for key, file_name in images.items():
            if key not in labels:
                problems.append(Problem(file_name, f"{path.name} has no class for this image"))
            elif not (folder / file_name).is_file():
                problems.append(Problem(file_name, "the image is not there"))
            else:
                item = Item(file_name, partial(_whole, str(folder / file_name)))
                classes[labels[key]].append(item)
    return Found([ClassFound(name, items) for name, items in classes.items()], problems)


def _annotated(path: Path) -> tuple[dict[Any, str], dict[Any, str]]:
    """The file names of images, in the order of their numbers, and their classes, by these."""
    content = _json(path, "images", "annotations", "categories")
    try:
        names = {c["id"]: f"{c['id']:04d}.{c['name']}" for c in content["categories"]}
        images = {image["id"]: str(image["file_name"]) for image in content["images"]}
        labels = {a["image_id"]: names[a["category_id"]] for a in content["annotations"]}
        # Numbers and texts among each other have no order.
        images = dict(sorted(images.items()))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} has an entry that is not as published ({error!r}).") from None
    return images, labels


def read_flowers(folder: Path) -> Found:
    """VGG Flower: all images in one folder, and their classes in a file of MATLAB's."""
    labels_file, images = folder / "imagelabels.mat", folder / "jpg"
    if not labels_file.is_file() or not images.is_dir():
        return Found()
    classes: dict[str, list[Item]] = defaultdict(list)
    problems = []
    for number, label in enumerate(_mat_numbers(labels_file), start=1):
        file_name = f"image_{number:05d}.jpg"
        path = images / file_name
        if path.is_file():
            classes[str(label)].append(Item(f"jpg/{file_name}", partial(_whole, str(path))))
        else:
            problems.append(Problem(f"jpg/{file_name}", "the image is not there"))
    return Found([ClassFound(name, items) for name, items in classes.items()], problems)


def read_mscoco(folder: Path) -> Found:
    """MSCOCO: every box of an object in the training photos of 2017."""
    places = [folder / "annotations", folder]
    lists = [path for place in places if (path := place / "instances_train2017.json").is_file()]
    images = folder / "train2017"
    if not lists or not images.is_dir():
        return Found()
    content = _json(lists[0], "annotations", "categories")
    classes: dict[str, list[Item]] = defaultdict(list)
    there = set(files(images))
    absent: set[str] = set()
    try:
        names = {c["id"]: str(c["name"]) for c in content["categories"]}
        for number, entry in enumerate(content["annotations"]):
            file_name = f"{entry['image_id']:012d}.jpg"
            name = names[entry["category_id"]]
            if file_name not in there:
                absent.add(file_name)
                continue
            left, top, width, height = (float(value) for value in entry["bbox"])
            box = left, top, left + width, top + height
            read = partial(_cut_out_of_coco, str(images / file_name), box)
            classes[name].append(Item(f"{name}/{file_name} box {number}", read))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{lists[0]} has an entry that is not as published ({error!r}).") from None
    problems = [Problem(f"train2017/{name}", "the image is not there") for name in sorted(absent)]
    return Found([ClassFound(name, items) for name, items in classes.items()], problems)


def _json(path: Path, *keys: str) -> Mapping[str, Any]:
    try:
        # Outlines are most of such a file, and not used.
        content = json.loads(path.read_text(encoding="utf-8"), object_hook=_without_outlines)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({error}).") from None
    if not isinstance(content, dict) or not all(isinstance(content.get(k), list) for k in keys):
        raise DataError(f"{path} must have the lists {', '.join(keys)}; get it again.")
    return content


def _without_outlines(entry: dict[str, Any]) -> dict[str, Any]:
    entry.pop("segmentation", None)
    return entry


def _lines(path: Path) -> list[tuple[str, str]]:
    """The first word of every line, and the rest."""
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); get it again.") from None
    lines = [line.strip().partition(" ") for line in text.splitlines()]
    return [(name, rest.strip()) for name, _, rest in lines if name]


def _numbers(text: str, path: Path) -> Box:
    try:
        left, top, right, bottom = map(float, text.split())
    except ValueError:
        raise DataError(
            f"{path} has a line with {text!r}, but must have a name and four numbers in each."
        ) from None
    return left, top, right, bottom


def _whole(path: str) -> bytes:
    return Path(path).read_bytes()


def _cut_out(path: str, box: Box) -> np.ndarray:
    content = Path(path).read_bytes()
    # What becomes of pixels is told later; this is where the file itself is decoded.
    with told():
        image = opened(content).convert("RGB")
    _check_finite(box)
    left, top = max(0, int(box[0])), max(0, int(box[1]))
    right, bottom = min(image.width, int(box[2])), min(image.height, int(box[3]))
    if right <= left or bottom <= top:
        raise DataError(f"its box {list(box)} has no pixels in the image")
    return np.asarray(image.crop((left, top, right, bottom)))


def _cut_out_of_coco(path: str, box: Box) -> np.ndarray:
    """A box enlarged; its coordinates are of the centres of pixels, not of their corners."""
    left, top, right, bottom = box
    more_width, more_height = ((_BOX_SCALE - 1) / 2 * side for side in (right - left, bottom - top))
    larger = left - more_width, top - more_height, right + more_width, bottom + more_height
    _check_finite(larger)
    left, top, right, bottom = (round(side - 0.5) for side in larger)
    return _cut_out(path, (left, top, right + 1, bottom + 1))


def _check_finite(box: Box) -> None:
    if not all(map(math.isfinite, box)):
        raise DataError(f"its box {list(box)} is not made of finite numbers")


@functools.lru_cache(maxsize=16)
def _mapped(path: str) -> np.ndarray:
    # Where it is an archive after all, `np.load` would leave it open.
    return np.asarray(np.lib.format.open_memmap(path, mode="r"))


def _drawing(path: str, number: int) -> np.ndarray:
    return np.array(_mapped(path)[number]).reshape(_SIDE, _SIDE)


def _mat_numbers(path: Path) -> Sequence[int]:
    """The numbers of the only array in a file of MATLAB 5.

    A file is a header of 128 bytes and then elements, each a type and a size of four bytes and
    then its data, in eights of bytes; type 15 is another element, compressed. An array (type 14)
    has four elements: flags, dimensions, name and numbers.
    """
    try:
        kind, data, _ = _element(path.read_bytes()[128:])
        if kind == 15:
            kind, data, _ = _element(zlib.decompress(data))
        if kind != 14:
            raise ValueError("its first element is no array")
        for _ in range(3):
            _, _, data = _element(data)
        kind, numbers, _ = _element(data)
        types = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 9: "<f8"}
        values = np.frombuffer(numbers, types[kind]).astype(np.int64)
    except (OSError, KeyError, ValueError, zlib.error) as error:
        raise DataError(f"{path} is not a file of labels ({error}); get it again.") from None
    return [int(value) for value in values]


def _element(content: bytes) -> tuple[int, bytes, bytes]:
    """The type and data of the first element, and what comes after it."""
    if len(content) < 8:
        raise ValueError("it is cut off")
    kind, size = (int(value) for value in np.frombuffer(content[:8], "<u4"))
    if kind >> 16:
        # A small element has its size in the upper half, and its data where the size would be.
        kind, size = kind & 0xFFFF, kind >> 16
        return kind, content[4 : 4 + size], content[8:]
    if len(content) < 8 + size:
        raise ValueError("it is cut off")
    end = 8 + size if kind == 15 else 8 + -(-size // 8) * 8
    return kind, content[8 : 8 + size], content[end:]
