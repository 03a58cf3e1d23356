"""The sources of Meta-Dataset, in class folders and in the layouts of their publishers."""

from __future__ import annotations

import io
import json
import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from alfa.data import prepare
from alfa.data._decode import decode
from alfa.data.sources import SOURCES
from alfa.errors import DataError

NAMES = sorted(name for name in SOURCES if name.startswith("md-"))
FEW = 3


def class_list(name: str):
    return SOURCES.get(name)().class_list()


def few(name: str) -> dict[str, list[str]]:
    return {split: list(names[:FEW]) for split, names in class_list(name).splits.items()}


def on_disk(name: str) -> str:
    """Return the folder name of a class."""
    return name if "/character" in name else name.replace("/", "_")


@pytest.fixture(params=NAMES)
def name(request) -> str:
    return request.param


# Class folders


def test_class_folders(name, tmp_path, find, make_classes, counts):
    every = [on_disk(n) for names in few(name).values() for n in names]
    make_classes(tmp_path / "data" / "images", every)
    expected = {split: (len(n), 2 * len(n)) for split, n in few(name).items() if n}
    assert counts(find(SOURCES.get(name)(), tmp_path / "data")) == expected


@pytest.mark.parametrize("folder", ["train", "novel"])
def test_names_and_not_folders_say_which_split_a_class_is_in(
    name, tmp_path, find, make_classes, counts, fatal, folder
):
    every = [on_disk(n) for names in few(name).values() for n in names]
    make_classes(tmp_path / "data" / folder, every)
    listing = find(SOURCES.get(name)(), tmp_path / "data")
    expected = {split: (len(n), 2 * len(n)) for split, n in few(name).items() if n}
    assert counts(listing) == expected
    # All other classes of these splits are reported as missing.
    absent = sum(len(names) - FEW for names in class_list(name).splits.values() if names)
    assert len(fatal(listing)) == absent
    assert all("this class of the published split is missing" in line for line in fatal(listing))


def test_nothing_of_it_is_there(name, tmp_path, find, make_classes):
    make_classes(tmp_path / "data", ["no such class", "nor this one"])
    with pytest.raises(DataError, match=r"found no .* looked for"):
        find(SOURCES.get(name)(), tmp_path / "data")


@pytest.mark.parametrize(
    ("name", "folder", "expected"),
    [
        ("md-traffic-sign", "00014", "14.Stop"),
        ("md-traffic-sign", "7", "07.Speed limit (100km/h)"),
        ("md-flower", "001", "001.pink primrose"),
        ("md-flower", "102", "102.blackberry lily"),
        ("md-aircraft", "F-16A_B", "F-16A/B"),
        # In other datasets, numbers are not class names.
        ("md-birds", "2", None),
        ("md-birds", "002.laysan_albatross", "002.Laysan_Albatross"),
        ("md-fungi", "0008.Agaricus campestris", "0008.Agaricus campestris"),
        ("md-textures", "7", None),
        ("md-textures", "Banded", "banded"),
    ],
)
def test_folder_names(name, folder, expected):
    assert class_list(name).name(folder) == expected


# FGVC-Aircraft


@pytest.fixture
def aircraft(tmp_path):
    data = tmp_path / "fgvc-aircraft-2013b" / "data"
    (data / "images").mkdir(parents=True)
    pixels = np.arange(10 * 20 * 3, dtype=np.uint8).reshape(10, 20, 3)
    names = ["0034309", "0034958", "1025794"]
    for number in names:
        Image.fromarray(pixels).save(data / "images" / f"{number}.jpg", quality=100)
    boxes = ["0034309 3 2 12 9", "0034958 1 1 20 10", "1025794 5 5 400 400"]
    (data / "images_box.txt").write_text("\n".join(boxes) + "\n")
    (data / "images_variant_trainval.txt").write_text("0034309 A318\n1025794 F-16A/B\n")
    (data / "images_variant_test.txt").write_text("0034958 A318\n")
    return data


def test_aircraft_are_cut_out_by_their_boxes(aircraft, tmp_path, find):
    for path in (aircraft, tmp_path):
        listing = find(SOURCES.get("md-aircraft")(), path)
        items = listing.classes["train"]["A318"]
        assert [item.name for item in items] == ["A318/0034309.jpg", "A318/0034958.jpg"]
        # Columns 3 to 12 and rows 2 to 9.
        assert items[0].read().shape == (8, 10, 3)
        assert items[1].read().shape == (10, 20, 3)
        whole = np.asarray(Image.open(aircraft / "images" / "0034309.jpg"))
        assert np.array_equal(items[0].read(), whole[1:9, 2:12])
        # A box beyond the image ends at its border.
        (other,) = next(c["F-16A/B"] for c in listing.classes.values() if "F-16A/B" in c)
        assert other.read().shape == (6, 16, 3)
        assert decode(other.read(), size=8, num_channels=3)[0].shape == (3, 8, 8)


def test_what_is_wrong_with_aircraft_is_named(aircraft, find, fatal):
    (aircraft / "images" / "0034958.jpg").unlink()
    (aircraft / "images_box.txt").write_text("0034309 3 2 12 9\n0034958 1 1 20 10\n")
    listing = find(SOURCES.get("md-aircraft")(), aircraft)
    told = [line for line in fatal(listing) if "published split" not in line]
    assert told == [
        "A318/0034958.jpg: the image is missing",
        "F-16A/B/1025794.jpg: images_box.txt has no box for this image",
    ]
    (aircraft / "images_box.txt").write_text("0034309 3 2 12\n")
    with pytest.raises(DataError, match="four numbers in each"):
        find(SOURCES.get("md-aircraft")(), aircraft)


def test_a_box_without_pixels_is_a_problem_of_its_image(aircraft, find):
    (aircraft / "images_box.txt").write_text("0034309 30 2 40 9\n0034958 1 1 20 10\n")
    listing = find(SOURCES.get("md-aircraft")(), aircraft)
    with pytest.raises(DataError, match="contains no pixels of the image"):
        listing.classes["train"]["A318"][0].read()


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "1e999"])
def test_a_box_without_end_is_a_problem_of_its_image(aircraft, find, number):
    (aircraft / "images_box.txt").write_text(f"0034309 3 2 {number} 9\n0034958 1 1 20 10\n")
    first, second = find(SOURCES.get("md-aircraft")(), aircraft).classes["train"]["A318"]
    with pytest.raises(DataError, match=r"the box \[2\.0, 1\.0, .*\] must consist of finite"):
        first.read()
    assert second.read().shape == (10, 20, 3)


def bomb(side: int) -> bytes:
    """A small file that declares many pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    parts = [chunk(b"IHDR", head), chunk(b"IDAT", b""), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


# Pillow warns of the second, and refuses the third.
@pytest.mark.parametrize("side", [9_000, 10_000, 20_000])
def test_an_image_bomb_among_aircraft_is_told_by_name(aircraft, tmp_path, side):
    (aircraft / "images" / "0034309.jpg").write_bytes(bomb(side))
    options = {"root": tmp_path / "data", "size": 8, "on_problem": "skip"}
    store = prepare(SOURCES.get("md-aircraft")(), aircraft, **options)
    (told,) = [line for line in store.index.left_out if "published split" not in line]
    assert told.startswith("A318/0034309.jpg: declares ")
    assert told.endswith("it may be a decompression bomb, so resize it")
    assert store.items() == ["A318/0034958.jpg", "F-16A/B/1025794.jpg"]


def test_a_damaged_image_among_aircraft_is_a_problem_of_its_own(aircraft, find):
    path = aircraft / "images" / "0034309.jpg"
    path.write_bytes(path.read_bytes()[:-200])
    first, second = find(SOURCES.get("md-aircraft")(), aircraft).classes["train"]["A318"]
    with pytest.raises(DataError, match="is damaged or truncated"):
        first.read()
    assert second.read().shape == (10, 20, 3)


@pytest.mark.parametrize("name", ["images_box.txt", "images_variant_test.txt"])
def test_a_list_of_aircraft_that_is_no_text_is_refused(aircraft, find, name):
    (aircraft / name).write_bytes(b"0034309 \xff\xfe")
    with pytest.raises(DataError, match=rf"{name} cannot be read \(.*utf-8.*download it again\.$"):
        find(SOURCES.get("md-aircraft")(), aircraft)


# Quick, Draw!


def test_drawings_come_from_arrays(tmp_path, find, counts):
    rng = np.random.default_rng(0)
    arrays = {
        "angel": rng.integers(0, 256, (7, 784), np.uint8),
        "full%2Fnumpy_bitmap%2Fanimal migration": rng.integers(0, 256, (4, 784), np.uint8),
        "axe": rng.integers(0, 256, (3, 784), np.uint8),
        "nothing of the list": rng.integers(0, 256, (3, 784), np.uint8),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    listing = find(SOURCES.get("md-quickdraw")(max_per_class=5), tmp_path)
    assert counts(listing) == {"test": (3, 12)}
    read = [item.read() for item in listing.classes["test"]["angel"]]
    assert np.array_equal(np.stack(read), arrays["angel"][:5].reshape(5, 28, 28))


def test_an_array_of_something_else_is_named(tmp_path, find, fatal):
    np.save(tmp_path / "angel.npy", np.zeros((3, 784), np.uint8))
    np.save(tmp_path / "axe.npy", np.zeros((3, 785), np.uint8))
    (tmp_path / "bat.npy").write_bytes(b"no array")
    np.save(tmp_path / "bear.npy", np.array([{}]), allow_pickle=True)
    whole = (tmp_path / "angel.npy").read_bytes()
    (tmp_path / "bee.npy").write_bytes(whole.replace(b"}", b" "))
    (tmp_path / "belt.npy").write_bytes(b"PK\x03\x04" + whole)
    told = fatal(find(SOURCES.get("md-quickdraw")(), tmp_path))
    told = [line for line in told if "published split" not in line]
    assert told[0] == "axe: axe.npy must be uint8 [drawing, 784], got uint8 [3, 785]"
    assert told[1].startswith("bat: bat.npy cannot be read")
    assert told[2].startswith("bear: bear.npy cannot be read")
    assert told[3].startswith("bee: bee.npy cannot be read")
    assert told[4].startswith("belt: belt.npy cannot be read")


# FGVCx Fungi


@pytest.fixture
def fungi(tmp_path, png):
    names = ["train/a.JPG", "train/b.JPG", "val/c.JPG"]
    for name in names:
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png)
    categories = [
        {"id": 8, "name": "Agaricus campestris"},
        {"id": 226, "name": "Cortinarius malicorius"},
    ]
    content = {
        "train": (["train/a.JPG", "train/b.JPG"], [8, 226]),
        "val": (["val/c.JPG"], [8]),
    }
    number = 0
    for part, (files, labels) in content.items():
        images, annotations = [], []
        for file, label in zip(files, labels, strict=True):
            images.append({"id": number, "file_name": f"images/{file}"})
            annotations.append({"image_id": number, "category_id": label})
            number += 1
        table = {"images": images, "annotations": annotations, "categories": categories}
        (tmp_path / f"{part}.json").write_text(json.dumps(table))
    return tmp_path


def test_fungi_of_both_lists_are_found(fungi, find, counts, png):
    listing = find(SOURCES.get("md-fungi")(), fungi)
    assert counts(listing) == {"train": (1, 1), "test": (1, 2)}
    items = listing.classes["test"]["0008.Agaricus campestris"]
    assert [item.name for item in items] == ["images/train/a.JPG", "images/val/c.JPG"]
    assert items[0].read() == png


def test_what_is_wrong_with_fungi_is_named(fungi, find, fatal):
    (fungi / "images" / "val" / "c.JPG").unlink()
    table = json.loads((fungi / "train.json").read_text())
    table["annotations"].pop()
    (fungi / "train.json").write_text(json.dumps(table))
    told = [line for line in fatal(find(SOURCES.get("md-fungi")(), fungi)) if "split" not in line]
    assert told == [
        "images/train/b.JPG: train.json has no class for this image",
        "images/val/c.JPG: the image is missing",
    ]
    (fungi / "val.json").write_text("{}")
    with pytest.raises(DataError, match="must have the lists images, annotations, categories"):
        find(SOURCES.get("md-fungi")(), fungi)
    (fungi / "val.json").write_text("no json")
    with pytest.raises(DataError, match=r"val\.json cannot be read"):
        find(SOURCES.get("md-fungi")(), fungi)
    (fungi / "val.json").write_text('{"images": [{}], "annotations": [], "categories": []}')
    with pytest.raises(DataError, match="an invalid entry"):
        find(SOURCES.get("md-fungi")(), fungi)


def test_numbers_of_fungi_that_are_partly_texts_are_refused(fungi, find):
    table = json.loads((fungi / "train.json").read_text())
    table["images"][1]["id"] = "one"
    (fungi / "train.json").write_text(json.dumps(table))
    with pytest.raises(DataError, match=r"train\.json has an invalid entry"):
        find(SOURCES.get("md-fungi")(), fungi)


# VGG Flower


def mat_file(labels: list[int], *, compressed: bool) -> bytes:
    """A MATLAB file with the row `labels`."""
    file = io.BytesIO()
    savemat(file, {"labels": np.array([labels], np.uint8)}, do_compression=compressed)
    return file.getvalue()


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("labels", [[77, 77, 5, 102, 5], [5, 5]])
def test_flowers_have_their_classes_from_a_file_of_matlab(tmp_path, find, png, compressed, labels):
    (tmp_path / "jpg").mkdir()
    for number in range(1, len(labels) + 1):
        (tmp_path / "jpg" / f"image_{number:05d}.jpg").write_bytes(png)
    (tmp_path / "imagelabels.mat").write_bytes(mat_file(labels, compressed=compressed))
    listing = find(SOURCES.get("md-flower")(), tmp_path)
    found = {n: items for classes in listing.classes.values() for n, items in classes.items()}
    assert {name[:3]: len(items) for name, items in found.items()} == {
        f"{label:03d}": labels.count(label) for label in labels
    }
    first = labels.index(5) + 1
    (marigold,) = [items for name, items in found.items() if name.startswith("005")]
    assert marigold[0].name == f"jpg/image_{first:05d}.jpg"
    assert marigold[0].read() == png


@pytest.mark.parametrize("cut", [60, 130, 150, -3])
def test_a_file_of_labels_that_is_cut_off_is_refused(tmp_path, find, cut):
    (tmp_path / "jpg").mkdir()
    content = mat_file([5, 6, 7, 8, 9], compressed=True)
    (tmp_path / "imagelabels.mat").write_bytes(content[:cut])
    with pytest.raises(DataError, match="is not a label file"):
        find(SOURCES.get("md-flower")(), tmp_path)


# MSCOCO


@pytest.fixture
def coco(tmp_path):
    (tmp_path / "train2017").mkdir()
    (tmp_path / "annotations").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "train2017" / "000000000009.jpg", quality=100)
    table = {
        "categories": [{"id": 5, "name": "airplane"}, {"id": 44, "name": "bottle"}],
        "annotations": [
            {"image_id": 9, "category_id": 5, "bbox": [10.0, 20.0, 10.0, 5.0]},
            {"image_id": 9, "category_id": 44, "bbox": [50.5, 30.2, 20.0, 20.0]},
            {"image_id": 25, "category_id": 5, "bbox": [1, 1, 2, 2]},
        ],
    }
    path = tmp_path / "annotations" / "instances_train2017.json"
    path.write_text(json.dumps(table))
    return tmp_path


def test_objects_are_cut_out_by_their_boxes_and_a_fifth_more(coco, find, fatal):
    listing = find(SOURCES.get("md-mscoco")(), coco)
    found = {n: items for classes in listing.classes.values() for n, items in classes.items()}
    whole = np.asarray(Image.open(coco / "train2017" / "000000000009.jpg"))
    # 10 wide from 10, a fifth more: from 9 to 21; in corners of pixels from 8 (8.5 rounds to
    # the even) to 20 and the one after it. Likewise 5 high from 20: from 19.5 to 25.5.
    assert np.array_equal(found["airplane"][0].read(), whole[19:26, 8:21])
    assert found["bottle"][0].read().shape[:2] == (40 - 28, 60 - 48)
    assert "train2017/000000000025.jpg: the image is missing" in fatal(listing)


def test_a_list_of_boxes_that_is_not_one_is_refused(coco, find):
    path = coco / "annotations" / "instances_train2017.json"
    path.write_text('{"annotations": [{"image_id": 9}], "categories": []}')
    with pytest.raises(DataError, match="an invalid entry"):
        find(SOURCES.get("md-mscoco")(), coco)


@pytest.mark.parametrize("number", ["1e999", "-Infinity", "NaN", "1.7e308"])
def test_a_box_without_end_in_a_photo_is_a_problem_of_its_own(coco, find, number):
    path = coco / "annotations" / "instances_train2017.json"
    path.write_text(path.read_text().replace("[10.0, 20.0, 10.0, 5.0]", f"[10, 20, {number}, 5]"))
    listing = find(SOURCES.get("md-mscoco")(), coco)
    found = {n: items for classes in listing.classes.values() for n, items in classes.items()}
    with pytest.raises(DataError, match=r"the box \[.*\] must consist of finite numbers"):
        found["airplane"][0].read()
    assert found["bottle"][0].read().shape == (12, 12, 3)


def test_a_number_of_a_box_that_is_too_long_is_refused(coco, find):
    path = coco / "annotations" / "instances_train2017.json"
    path.write_text(path.read_text().replace("[10.0, 20.0,", f"[{'9' * 400}, 20.0,"))
    with pytest.raises(DataError, match="an invalid entry"):
        find(SOURCES.get("md-mscoco")(), coco)


# Folders of other splits


def test_images_of_a_class_in_several_folders_are_all_taken(tmp_path, find, make_classes, counts):
    """Textures and aircraft are often stored in such folders."""
    names = few("md-textures")["train"]
    for part, count in (("train", 3), ("val", 2), ("test", 1)):
        make_classes(tmp_path / "dtd" / part, names, count=count)
    listing = find(SOURCES.get("md-textures")(), tmp_path / "dtd")
    assert counts(listing) == {"train": (FEW, 6 * FEW)}


def test_imagenet_has_training_images_only(tmp_path, find, make_classes, counts):
    names = few("md-ilsvrc")["train"]
    for part, count in (("train", 3), ("val", 2)):
        make_classes(tmp_path / "CLS-LOC" / part, names, count=count)
    listing = find(SOURCES.get("md-ilsvrc")(), tmp_path / "CLS-LOC")
    assert counts(listing) == {"train": (FEW, 3 * FEW)}


def test_an_empty_array_of_drawings_is_named(tmp_path, find, fatal):
    np.save(tmp_path / "angel.npy", np.zeros((3, 784), np.uint8))
    (tmp_path / "axe.npy").touch()
    told = fatal(find(SOURCES.get("md-quickdraw")(), tmp_path))
    assert any(line.startswith("axe: axe.npy cannot be read") for line in told)
