import os
import pickle

import numpy as np
import pytest

from alfa.data import SPLITS
from alfa.data.sources import SOURCES
from alfa.errors import DataError

SOURCE = SOURCES.get("miniimagenet")()


@pytest.fixture
def classes(published):
    return published("miniimagenet")


@pytest.fixture
def csv_files(tmp_path, classes, png):
    """``images/*`` and a list for every split."""
    tmp_path /= "data"
    (tmp_path / "images").mkdir(parents=True)
    for split, names in classes.items():
        lines = ["filename,label"]
        for name in names:
            for number in (3, 1):
                file = f"{name}{number:08}.jpg"
                (tmp_path / "images" / file).write_bytes(png)
                lines.append(f"{file},{name}")
        (tmp_path / f"{split}.csv").write_text("\n".join(lines))
    return tmp_path


def table(names, per_class=2):
    images = np.random.default_rng(0).integers(
        0, 256, (len(names) * per_class, 84, 84, 3), np.uint8
    )
    # Images of a class do not lie side by side.
    rows = {name: list(range(n, len(images), len(names))) for n, name in enumerate(names)}
    return {"image_data": images, "class_dict": rows}


@pytest.fixture
def caches(tmp_path, classes):
    for split, names in classes.items():
        content = pickle.dumps(table(names), protocol=2)
        (tmp_path / f"mini-imagenet-cache-{split}.pkl").write_bytes(content)
    return tmp_path


def test_lists_of_images(csv_files, find, counts, fatal, classes):
    for path in (csv_files, csv_files.parent):
        listing = find(SOURCE, path)
        assert counts(listing) == {"train": (64, 128), "val": (16, 32), "test": (20, 40)}
        assert fatal(listing) == []
    name = classes["train"][0]
    items = listing.classes["train"][name]
    assert [item.name for item in items] == [f"images/{name}{n:08}.jpg" for n in (1, 3)]
    assert items[0].read().startswith(b"\x89PNG")


def test_images_that_a_list_names_and_that_are_not_there(csv_files, find, counts, notes, classes):
    name = classes["val"][0]
    (csv_files / "images" / f"{name}00000001.jpg").unlink()
    listing = find(SOURCE, csv_files)
    assert counts(listing)["val"] == (16, 31)
    what = "1 of the 2 images in val.csv are missing; the first is n0185567200000001.jpg"
    assert f"val/{name}: {what}" in notes(listing)


def test_a_list_that_names_an_unknown_class(csv_files, find, fatal, classes):
    path = csv_files / "val.csv"
    file = f"{classes['val'][0]}00000001.jpg"
    path.write_text(path.read_text() + f"\n{file},n99999999\n")
    told = "val/n99999999: no split has a class of this name"
    assert fatal(find(SOURCE, csv_files)) == [told]


@pytest.mark.parametrize("content", ["file,class\na,b\n", "filename,label\nonly-one\n"])
def test_a_list_that_is_none(csv_files, find, content):
    (csv_files / "train.csv").write_text(content)
    with pytest.raises(DataError, match=r"train\.csv is not a list of images: the first line must"):
        find(SOURCE, csv_files)


def test_images_called_after_their_class(csv_files, find, counts, fatal, pack):
    for split in SPLITS:
        (csv_files / f"{split}.csv").unlink()
    expected = {"train": (64, 128), "val": (16, 32), "test": (20, 40)}
    assert counts(find(SOURCE, csv_files)) == expected
    (csv_files / "images" / "cat.jpg").touch()
    assert counts(find(SOURCE, csv_files / "images")) == expected
    (csv_files / "in").mkdir()
    (csv_files / "images").rename(csv_files / "in" / "images")
    pack(csv_files / "images.zip", csv_files / "in")
    assert counts(find(SOURCE, csv_files)) == expected


def test_caches(caches, find, counts, fatal, classes):
    listing = find(SOURCE, caches)
    assert counts(listing) == {"train": (64, 128), "val": (16, 32), "test": (20, 40)}
    assert fatal(listing) == []
    name = classes["train"][5]
    images = table(classes["train"])["image_data"]
    items = listing.classes["train"][name]
    assert [item.name for item in items] == [f"{name}/5", f"{name}/69"]
    for item, row in zip(items, (5, 69), strict=True):
        np.testing.assert_array_equal(item.read(), images[row])


def test_one_cache_alone_and_in_an_archive(caches, find, counts, pack):
    listing = find(SOURCE, caches / "mini-imagenet-cache-val.pkl")
    assert counts(listing) == {"val": (16, 32)}
    (caches / "in").mkdir()
    for file in caches.glob("*.pkl"):
        file.rename(caches / "in" / file.name)
    archive = pack(caches / "mini-imagenet.tar", caches / "in")
    assert len(counts(find(SOURCE, archive))) == 3


def test_a_cache_of_python_2(tmp_path, find, counts, classes):
    content = table(classes["test"])
    old = {
        b"image_data": content["image_data"],
        b"class_dict": {name.encode(): rows for name, rows in content["class_dict"].items()},
    }
    (tmp_path / "mini-imagenet-cache-test.pkl").write_bytes(pickle.dumps(old, protocol=2))
    assert counts(find(SOURCE, tmp_path)) == {"test": (20, 40)}


class Exploit:
    def __reduce__(self):
        return os.mkdir, ("hacked",)


def broken(kind, names):
    content = table(names)
    if kind == "entry":
        del content["class_dict"]
    elif kind == "float":
        content["image_data"] = content["image_data"].astype(np.float32)
    elif kind == "flat":
        content["image_data"] = content["image_data"][0]
    elif kind == "row":
        content["class_dict"][names[0]].append(1000)
    elif kind == "number":
        content["class_dict"][names[0]] = 3
    elif kind == "words":
        content["class_dict"][names[0]] = ["x"]
    elif kind == "exploit":
        content["class_dict"][names[0]] = Exploit()
    return content


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        ("entry", r"has no entry 'class_dict'"),
        ("float", r"must have `image_data`, a uint8 array"),
        ("flat", r"must have `image_data`, a uint8 array"),
        ("row", r"has 40 images, but assigns the images 0 to 1000 to n01930112"),
        ("number", r"has no list of images of n01930112; download it again"),
        ("words", r"has no list of images of n01930112; download it again"),
        ("exploit", r"is refused: it contains \w+\.mkdir"),
    ],
)
def test_a_broken_cache(tmp_path, monkeypatch, find, classes, kind, match):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mini-imagenet-cache-test.pkl"
    file.write_bytes(pickle.dumps(broken(kind, classes["test"])))
    with pytest.raises(DataError, match=match) as caught:
        find(SOURCE, tmp_path)
    assert str(file) in str(caught.value)
    assert not (tmp_path / "hacked").exists()
