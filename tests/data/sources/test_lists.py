"""The class lists in the package, and the attributes of every source."""

import hashlib
import itertools
from importlib import resources

import pytest

from alfa.data import SPLITS
from alfa.data.sources import SOURCES
from alfa.data.sources._base import IMAGENET_MEAN, IMAGENET_STD

SIZES = {
    "miniimagenet": (64, 16, 20),
    "tieredimagenet": (351, 97, 160),
    "cifar-fs": (64, 16, 20),
    "fc100": (60, 20, 20),
    "cub": (100, 50, 50),
    "omniglot": (1028, 172, 423),
    "omniglot-lake": (964, 0, 659),
    "md-ilsvrc": (712, 158, 130),
    "md-omniglot": (883, 81, 659),
    "md-aircraft": (70, 15, 15),
    "md-birds": (140, 30, 30),
    "md-textures": (33, 7, 7),
    "md-quickdraw": (241, 52, 52),
    "md-fungi": (994, 200, 200),
    "md-flower": (71, 15, 16),
    "md-traffic-sign": (0, 0, 43),
    "md-mscoco": (0, 40, 40),
}
IMAGES = {
    "miniimagenet": 60_000,
    "tieredimagenet": 779_165,
    "cifar-fs": 60_000,
    "fc100": 60_000,
    "cub": 11_788,
    "omniglot": 32_460,
    "vgg-flower": 8_189,
    "traffic-sign": 39_209,
    "md-omniglot": 32_460,
    "md-aircraft": 10_000,
    "md-textures": 5_640,
    "md-traffic-sign": 39_209,
    # The number of images in each split is unknown.
    **dict.fromkeys(["md-ilsvrc", "md-birds", "md-quickdraw", "md-fungi", "md-flower"]),
    "md-mscoco": None,
}


# The first digits of each list's SHA-256 after its comparison with the publication. No other test
# notices two classes that are swapped between splits.
DIGESTS = {
    "cifar-fs": "a1dd69212f17984a",
    "cub": "fd002d973863f97d",
    "fc100": "1e830566e1234a94",
    "md-aircraft": "e34ec00193ada727",
    "md-birds": "035c08c9300f8bf7",
    "md-flower": "493c6d58e05770d8",
    "md-fungi": "f2349a6660116e9e",
    "md-ilsvrc": "ba669dbd80609e9b",
    "md-mscoco": "9bf22b954231e10c",
    "md-omniglot": "dd4f8faf74864926",
    "md-quickdraw": "4738f3bfb013e374",
    "md-textures": "43b1626ae1461c18",
    "md-traffic-sign": "78abd5fe360c1bb9",
    "miniimagenet": "b58d068535d49118",
    "omniglot-lake": "297e94b45add1a9f",
    "omniglot": "80e1727e3ce2a223",
    "tieredimagenet": "a28b9ffb73dacb14",
}


def class_list(name: str):
    if name == "omniglot-lake":
        return SOURCES.get("omniglot")(scheme="lake").class_list()
    return SOURCES.get(name)().class_list()


@pytest.mark.parametrize("name", SIZES)
def test_a_list_is_as_published(name):
    content = (resources.files("alfa.data") / "splits" / f"{name}.json").read_bytes()
    assert hashlib.sha256(content).hexdigest()[:16] == DIGESTS[name]


def test_every_list_is_tested():
    shipped = (resources.files("alfa.data") / "splits").iterdir()
    assert sorted(file.name for file in shipped) == sorted(f"{name}.json" for name in SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_splits_are_disjoint_and_of_the_published_sizes(name):
    splits = class_list(name).splits
    assert list(splits) == list(SPLITS)
    assert tuple(len(splits[split]) for split in SPLITS) == SIZES[name]
    every = list(itertools.chain(*splits.values()))
    assert len({entry.casefold() for entry in every}) == sum(SIZES[name])
    assert all(splits[split] == sorted(splits[split]) for split in SPLITS)


def test_the_lists_have_the_right_classes():
    cifar, coarse = class_list("cifar-fs"), class_list("fc100")
    assert set(cifar.split_of) == set(coarse.split_of)
    assert len(set(cifar.splits["train"]) & set(coarse.splits["test"])) == 11
    assert class_list("miniimagenet").split_of["n01532829"] == "train"
    assert class_list("cub").split_of["004.Groove_billed_Ani"] == "test"
    wnids = [*class_list("miniimagenet").split_of, *class_list("tieredimagenet").split_of]
    assert all(len(name) == 9 and name[0] == "n" and name[1:].isdigit() for name in wnids)


def test_birds_are_dealt_out_in_turn():
    for name, split in class_list("cub").split_of.items():
        assert split == ("train", "val", "train", "test")[(int(name[:3]) - 1) % 4]


def test_characters_count_once_without_rotations():
    vinyals, lake = class_list("omniglot"), class_list("omniglot-lake")
    assert set(vinyals.split_of) == set(lake.split_of)
    assert all(name.count("/") == 1 and "/character" in name for name in lake.split_of)
    alphabets = {split: {n.split("/")[0] for n in lake.splits[split]} for split in SPLITS}
    assert (len(alphabets["train"]), len(alphabets["test"])) == (30, 20)
    assert not alphabets["train"] & alphabets["test"]
    # All background characters and some others are for training or validation.
    assert {vinyals.split_of[name] for name in lake.splits["train"]} == {"train", "val"}


@pytest.mark.parametrize("name", IMAGES)
def test_published_counts(name):
    published = SOURCES.get(name)().published
    counts = [images for _, images in published.values()]
    if IMAGES[name] is None:
        assert set(counts) == {None}
    else:
        assert sum(counts) == IMAGES[name]
    if name in SIZES:
        found = tuple(published.get(split, (0, 0))[0] for split in SPLITS)
        assert found == SIZES[name]


def test_alphabets_are_in_one_split_only():
    splits = class_list("md-omniglot").splits
    alphabets = [{name.split("/")[0] for name in splits[split]} for split in SPLITS]
    assert [len(names) for names in alphabets] == [25, 5, 20]
    assert len(set.union(*alphabets)) == 50


def test_omniglot_of_lake_has_no_validation_split():
    assert SOURCES.get("omniglot")(scheme="lake").published == {
        "train": (964, 19_280),
        "test": (659, 13_180),
    }


@pytest.mark.parametrize("name", [*IMAGES, "folder"])
def test_the_attributes_of_a_source(name):
    source = SOURCES.get(name)()
    assert source.title
    assert source.layouts
    assert source.terms.endswith(".")
    assert source.num_channels == len(source.mean) == len(source.std)
    normal = {
        "cifar-fs": ((0.5071, 0.4847, 0.4408), (0.2675, 0.2565, 0.2761)),
        "fc100": ((0.5071, 0.4847, 0.4408), (0.2675, 0.2565, 0.2761)),
        "omniglot": ((0.5,), (0.5,)),
    }
    usual = (IMAGENET_MEAN, IMAGENET_STD)
    if name.startswith("md-"):
        usual = ((0.5,) * source.num_channels,) * 2
    assert (source.mean, source.std) == normal.get(name, usual)
    small = {"cifar-fs": 32, "fc100": 32, "omniglot": 28, "traffic-sign": 32, "md-quickdraw": 28}
    size = small.get(name, 84)
    assert source.size == SOURCES.get(name).size == size
    assert dict(SOURCES.get(name).published) == dict(source.published)


def test_all_sources_are_registered():
    wanted = {"miniimagenet", "tieredimagenet", "cifar-fs", "fc100", "cub", "omniglot", "folder"}
    assert wanted | {"vgg-flower", "traffic-sign"} <= set(SOURCES)
    assert {name for name in SOURCES if name.startswith("md-")} == {n for n in SIZES if "md-" in n}
