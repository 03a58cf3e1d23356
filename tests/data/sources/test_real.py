"""The real datasets, unpacked into the folder ALFA_TEST_DATA."""

import functools
import io

import numpy as np
import pytest
from PIL import Image

from alfa.data._unpickle import load_plain
from alfa.data.sources import SOURCES, Folder, Workspace

WHERE = {
    "cifar-fs": "cifar-100-python",
    "fc100": "cifar-100-python",
    "omniglot": "omniglot",
    "cub": "cub_84",
    "miniimagenet": "mini_imagenet",
    "vgg-flower": "vgg_flower_84",
    "traffic-sign": "traffic_sign_32",
    "md-omniglot": "omniglot",
    "md-flower": "vgg_flower_84",
    "md-traffic-sign": "traffic_sign_32",
}
COUNTS = {
    "cifar-fs": {"train": (64, 38_400), "val": (16, 9_600), "test": (20, 12_000)},
    "fc100": {"train": (60, 36_000), "val": (20, 12_000), "test": (20, 12_000)},
    "omniglot": {"train": (1028, 20_560), "val": (172, 3_440), "test": (423, 8_460)},
    "cub": {"val": (50, 2_950), "test": (50, 2_953)},
    "miniimagenet": {"train": (64, 2_560), "val": (16, 640), "test": (20, 800)},
    "vgg-flower": {"test": (102, 3_060)},
    "traffic-sign": {"test": (43, 3_920)},
    "md-omniglot": {"train": (883, 17_660), "val": (81, 1_620), "test": (659, 13_180)},
    "md-flower": {"train": (71, 2_130), "val": (15, 450), "test": (16, 480)},
    "md-traffic-sign": {"test": (43, 3_920)},
}


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory):
    """The folder for unpacked archives, shared because some have tens of thousands of files."""
    return tmp_path_factory.mktemp("unpacked")


@pytest.fixture(scope="module")
def listing_of(real_data, unpacked):
    """Finds a dataset once for all tests."""
    return functools.cache(
        lambda name: SOURCES.get(name)().find(part_of(real_data, name), work=Workspace(unpacked))
    )


def part_of(real_data, name):
    path = real_data / WHERE[name]
    if not path.exists():
        pytest.skip(f"{path} does not exist")
    return path


@pytest.mark.parametrize("name", WHERE)
def test_counts(listing_of, counts, fatal, notes, name):
    source, listing = SOURCES.get(name), listing_of(name)
    assert counts(listing) == COUNTS[name]
    assert fatal(listing) == []
    differing = {
        split
        for split, (num_classes, num_images) in source.published.items()
        if COUNTS[name].get(split, (0, 0))[0] != num_classes
        or num_images not in (None, COUNTS[name].get(split, (0, 0))[1])
    }
    assert {note.split(":")[0] for note in notes(listing)} == differing
    for classes in listing.classes.values():
        item = next(iter(classes.values()))[0]
        content = item.read()
        if isinstance(content, bytes):
            content = np.asarray(Image.open(io.BytesIO(content)))
        assert content.shape[0] in (32, 84, 105)


@pytest.mark.parametrize("name", ["cub", "miniimagenet", "cifar-fs", "omniglot"])
def test_they_are_found_among_others(real_data, unpacked, counts, name):
    part_of(real_data, name)
    listing = SOURCES.get(name)().find(real_data, work=Workspace(unpacked))
    assert counts(listing) == COUNTS[name]


def test_birds_of_meta_dataset_are_found_under_folders_of_another_split(
    real_data, unpacked, counts, fatal
):
    folder = part_of(real_data, "cub")
    listing = SOURCES.get("md-birds")().find(folder, work=Workspace(unpacked))
    assert counts(listing) == {"train": (65, 3_829), "val": (19, 1_129), "test": (16, 945)}
    # Half of the classes are missing, and each is reported.
    assert len(fatal(listing)) == 100
    assert "train/001.Black_footed_Albatross: this class of the published split is missing" in (
        fatal(listing)
    )


def test_omniglot_of_lake(real_data, unpacked, counts, fatal, notes):
    source = SOURCES.get("omniglot")(scheme="lake")
    listing = source.find(part_of(real_data, "omniglot"), work=Workspace(unpacked))
    assert counts(listing) == {"train": (964, 19_280), "test": (659, 13_180)}
    assert fatal(listing) == notes(listing) == []


def test_cifar_pixels(real_data, listing_of):
    folder, listing = part_of(real_data, "cifar-fs"), listing_of("cifar-fs")
    pixels = {
        item.name: item.read().transpose(2, 0, 1).tobytes()
        for classes in listing.classes.values()
        for items in classes.values()
        for item in items
    }
    names = load_plain(folder / "meta")[b"fine_label_names"]
    for part in ("train", "test"):
        table = load_plain(folder / part)
        rows = zip(table[b"fine_labels"], table[b"filenames"], table[b"data"], strict=True)
        for label, file, row in rows:
            assert pixels.pop(f"{names[label].decode()}/{file.decode()}") == row.tobytes()
    assert not pixels


@pytest.mark.parametrize("name", ["vgg-flower", "traffic-sign"])
def test_any_folder_takes_them(real_data, unpacked, counts, name):
    listing = Folder(split="test").find(part_of(real_data, name), work=Workspace(unpacked))
    assert counts(listing) == COUNTS[name]
    assert not listing.problems
