import pickle

import numpy as np
import pytest

from alfa.data import SPLITS
from alfa.data.sources import SOURCES, _tieredimagenet
from alfa.errors import DataError

SOURCE = SOURCES.get("tieredimagenet")()


@pytest.fixture
def write(tmp_path, png):
    """Write the pickles of a split, with three images of each class in turn."""

    def make(split, names, *, folder=tmp_path / "data", labels=None, images=None, protocol=2):
        folder.mkdir(exist_ok=True)
        numbers = np.tile(np.arange(len(names), dtype=np.int32), 3)
        if images is None:
            # Encoded like OpenCV, with a trailing byte that identifies the image.
            images = [
                np.frombuffer(png + bytes([n % 256]), np.uint8)[:, None]
                for n in range(len(numbers))
            ]
        table = {
            "label_specific": numbers if labels is None else labels,
            "label_general": np.zeros_like(numbers),
            "label_specific_str": list(names),
            "label_general_str": ["all"],
        }
        for kind, content in (("images_png", images), ("labels", table)):
            file = folder / f"{split}_{kind}.pkl"
            file.write_bytes(pickle.dumps(content, protocol=protocol))
        return folder

    return make


WORDS = {"train": ["house finch", "robin"], "val": ["tench"], "test": ["kite, bird", "kite, bird"]}


def test_pickles_that_call_classes_by_words(tmp_path, write, find, counts, fatal, notes):
    for split in SPLITS:
        write(split, WORDS[split])
    for path in (tmp_path / "data", tmp_path):
        listing = find(SOURCE, path)
        assert counts(listing) == {"train": (2, 6), "val": (1, 3), "test": (2, 6)}
        assert fatal(listing) == []
    told = "train: 6 images in 2 classes, but the published split has 448,695 in 351"
    assert told in notes(listing)
    assert list(listing.classes["test"]) == ["kite, bird (0)", "kite, bird (1)"]
    items = listing.classes["train"]["robin"]
    assert [item.name for item in items] == ["robin/1", "robin/3", "robin/5"]
    assert [item.read()[-1] for item in items] == [1, 3, 5]
    assert items[0].read().startswith(b"\x89PNG")


def test_pickles_that_call_classes_by_number(write, find, counts, fatal, published):
    classes = published("tieredimagenet")
    folder = write("val", classes["val"][:-1])
    write("test", [classes["train"][0], *classes["test"]])
    listing = find(SOURCE, folder)
    assert counts(listing) == {"val": (96, 288), "test": (160, 480)}
    assert fatal(listing) == [
        f"test/{classes['train'][0]}: the folder is under test, but the class belongs to the train "
        "split",
        f"val/{classes['val'][-1]}: this class of the published split is missing",
    ]


def test_pickles_in_the_official_archive(tmp_path, write, find, counts, pack):
    folder = tmp_path / "in" / "tiered-imagenet"
    (tmp_path / "in").mkdir()
    for split in SPLITS:
        write(split, WORDS[split], folder=folder)
    archive = pack(tmp_path / "tiered-imagenet.tar", tmp_path / "in")
    assert len(counts(find(SOURCE, archive))) == 3


def test_a_pickle_is_read_once(write, find, monkeypatch):
    folder = write("train", WORDS["train"])
    before = find(SOURCE, folder)
    read = []
    real = _tieredimagenet.load_plain
    monkeypatch.setattr(_tieredimagenet, "load_plain", lambda file: read.append(file) or real(file))
    after = find(SOURCE, folder)
    assert [file.name for file in read] == ["train_labels.pkl"]
    for name in WORDS["train"]:
        one, other = (listing.classes["train"][name] for listing in (before, after))
        assert [item.read() for item in one] == [item.read() for item in other]


def test_images_without_labels_are_named(write, find):
    folder = write("train", WORDS["train"])
    write("val", WORDS["val"])
    for split in ("train", "val"):
        (folder / f"{split}_labels.pkl").unlink()
    with pytest.raises(DataError, match=r"put train_labels\.pkl, val_labels\.pkl beside them"):
        find(SOURCE, folder)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"labels": np.zeros(5, int)}, r"train_labels\.pkl does not belong to train_images_png"),
        ({"labels": np.full(6, 2)}, r"it has 6 labels of 2 classes for 6 images"),
        ({"labels": np.zeros((6, 1), int)}, r"does not belong to"),
        ({"labels": [[1], [1, 2]]}, r"train_labels\.pkl has no list of numbers"),
        ({"images": {"a": 1}}, r"train_images_png\.pkl is not a list of images"),
        ({"images": [np.zeros(3)]}, r"must be a list of PNG files.*one of them is float64"),
        ({"images": ["text"]}, r"must be a list of PNG files.*one of them is str"),
    ],
)
def test_broken_pickles(tmp_path, write, find, options, match):
    with pytest.raises(DataError, match=match):
        find(SOURCE, write("train", WORDS["train"], **options))
    work = tmp_path / "work"
    assert not work.exists() or not [p for p in work.iterdir() if p.name.startswith(".")]


def test_images_that_are_bytes(write, find, png):
    listing = find(SOURCE, write("train", ["robin"], images=[png] * 3))
    assert [item.read() for item in listing.classes["train"]["robin"]] == [png] * 3


def test_the_other_classes_of_imagenet_are_left_out(
    tmp_path, find, make_classes, published, counts, fatal, notes
):
    every = {each for names in published("md-ilsvrc").values() for each in names}
    own = {each for names in published("tieredimagenet").values() for each in names}
    make_classes(tmp_path / "ILSVRC", sorted(every), count=1)
    listing = find(SOURCE, tmp_path / "ILSVRC")
    assert sum(number for number, _ in counts(listing).values()) == len(own)
    assert fatal(listing) == []
    left = len(every - own)
    told = f"ImageNet: skipped {left:,} classes that are not part of tieredImageNet"
    assert told in notes(listing)
    # A class outside ImageNet is still an error.
    make_classes(tmp_path / "ILSVRC", ["n99999999"], count=1)
    told = "n99999999: no split has a class of this name"
    assert fatal(find(SOURCE, tmp_path / "ILSVRC")) == [told]
