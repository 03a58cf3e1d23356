"""Datasets with published splits, in class folders: the layouts that all of them share."""

import pickle

import pytest

from alfa.data.sources import SOURCES
from alfa.errors import DataError

DATASETS = ["miniimagenet", "tieredimagenet", "cifar-fs", "fc100", "cub", "omniglot"]
ARCHIVES = {
    "miniimagenet": "mini-imagenet.tar.gz",
    "tieredimagenet": "tiered-imagenet.tar",
    "cifar-fs": "cifar-100-python.tar.gz",
    "fc100": "FC100.zip",
    "cub": "CUB_200_2011.tgz",
    "omniglot": "omniglot.zip",
}
LIMIT = {"tieredimagenet": 5, "omniglot": 20, "cub": 20}


@pytest.fixture(params=DATASETS)
def name(request):
    return request.param


@pytest.fixture
def source(name):
    return SOURCES.get(name)()


@pytest.fixture
def classes(name, published):
    return published(name, LIMIT.get(name))


@pytest.fixture
def expected(classes):
    return {split: (len(names), 2 * len(names)) for split, names in classes.items()}


def test_split_folders(tmp_path, find, source, classes, make_splits, counts, expected):
    make_splits(tmp_path / "data", classes)
    for path in (tmp_path / "data", tmp_path):
        assert counts(find(source, path)) == expected


@pytest.mark.parametrize(
    "names",
    [
        ("base", "val", "novel"),
        ("Train", "Valid", "TEST"),
        ("meta-train", "validation", "meta_test"),
    ],
)
def test_other_names_of_split_folders(
    tmp_path, find, source, classes, make_splits, counts, expected, names
):
    make_splits(tmp_path / "data", classes, names=names)
    assert counts(find(source, tmp_path / "data")) == expected


def test_class_folders_alone(tmp_path, find, source, classes, make_classes, counts, expected):
    every = [name for names in classes.values() for name in names]
    deep = make_classes(tmp_path / "a" / "data" / "images", every)
    for path in (deep, deep.parent, tmp_path / "a", tmp_path):
        assert counts(find(source, path)) == expected


@pytest.mark.parametrize("layout", ["splits", "classes"])
def test_archives(
    tmp_path, find, source, name, classes, make_splits, make_classes, pack, counts, expected, layout
):
    inside = tmp_path / "inside"
    if layout == "splits":
        make_splits(inside / "data", classes)
    else:
        make_classes(inside / "images", [n for names in classes.values() for n in names])
    (tmp_path / "raw").mkdir()
    archive = pack(tmp_path / "raw" / ARCHIVES[name], inside)
    for path in (archive, archive.parent, tmp_path):
        listing = find(source, path)
        assert counts(listing) == expected
    items = next(iter(listing.classes["train"].values()))
    assert items[0].read().startswith(b"\x89PNG")


def test_one_split_of_three(
    tmp_path, find, source, name, classes, make_splits, counts, fatal, notes
):
    make_splits(tmp_path, {"val": classes["val"]})
    listing = find(source, tmp_path)
    assert list(counts(listing)) == ["val"]
    told = notes(listing)
    num_classes, num_images = source.published["train"]
    assert (
        f"train: 0 images in 0 classes, but the published split has {num_images:,} in "
        f"{num_classes:,}"
    ) in told
    assert (
        f"val: {2 * len(classes['val']):,} images in {len(classes['val']):,} classes"
        in " ".join(told)
    )
    if name not in LIMIT:
        assert fatal(listing) == []


def test_what_does_not_fit_is_all_named(
    tmp_path, find, source, classes, make_splits, make_classes, counts, fatal
):
    train, val = classes["train"], classes["val"]
    make_splits(tmp_path, {**classes, "train": train[3:], "val": val[1:]})
    deep = train[0].count("/")
    strangers = [f"x{n}/y"[: None if deep else 2] for n in range(2)]
    make_classes(tmp_path / "train", [train[0]], count=0)
    make_classes(tmp_path / "train", [val[0], *strangers])
    listing = find(source, tmp_path)
    told = fatal(listing)
    wanted = [
        f"train/{train[0]}: the class has no images",
        f"train/{train[1]}: this class of the published split is missing",
        f"train/{train[2]}: this class of the published split is missing",
        f"train/{val[0]}: the folder is under train, but the class belongs to the val split",
        *(f"train/{name}: no split has a class of this name" for name in strangers),
    ]
    assert set(wanted) <= set(told)
    assert len(listing.classes["train"]) == len(train) - 3
    assert val[0] not in listing.classes["val"]


def test_names_in_another_case_and_litter(
    tmp_path, find, source, classes, make_splits, counts, expected, png
):
    upper = {split: [name.upper() for name in names] for split, names in classes.items()}
    root = make_splits(tmp_path, upper, suffix=".PNG")
    first = root / "train" / upper["train"][0]
    for litter in (".DS_Store", "Thumbs.db", "._0.png", "desktop.ini"):
        (first / litter).write_bytes(b"litter")
    for folder in (root / "__MACOSX", root / "train" / ".cache", root / "train" / "__MACOSX"):
        folder.mkdir()
        (folder / "1.png").write_bytes(png)
    listing = find(source, tmp_path)
    assert counts(listing) == expected
    assert list(listing.classes["train"]) == sorted(classes["train"])


def test_nothing_of_it(tmp_path, find, source, make_classes):
    make_classes(tmp_path / "other", ["cat", "dog"])
    with pytest.raises(DataError) as caught:
        find(source, tmp_path / "other")
    message = str(caught.value)
    assert f"found no {source.title} under {tmp_path / 'other'}; looked for" in message
    assert all(layout in message for layout in source.layouts)
    with pytest.raises(DataError, match="nowhere does not exist; give the folder or the archive"):
        find(source, tmp_path / "nowhere")


def test_a_wrong_archive(tmp_path, find, source, name, make_classes, pack):
    archive = pack(tmp_path / ARCHIVES[name], make_classes(tmp_path / "in", ["cat"]))
    with pytest.raises(DataError, match=f"found no {source.title} under"):
        find(source, archive)
    archive.write_bytes(b"<html>")
    with pytest.raises(DataError, match="is damaged or has the wrong type"):
        find(source, archive)


def test_the_order_is_fixed_and_reading_can_be_handed_on(
    tmp_path, find, source, classes, make_splits
):
    root = make_splits(tmp_path, classes, count=12)
    name, items = next(iter(find(source, root).classes["train"].items()))
    numbers = [f"{name}/{n}.png" for n in (0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9)]
    assert [item.name for item in items] == numbers
    assert pickle.loads(pickle.dumps(items[0])).read() == items[0].read()


def test_links_and_other_files(tmp_path, find, make_splits, published, png, fatal, notes, counts):
    source, classes = SOURCES.get("cub")(), published("cub")
    root = make_splits(tmp_path / "data", {"train": classes["train"][1:]})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "1.jpg").write_bytes(png)
    first, second, third = classes["train"][:3]
    (root / "train" / first).symlink_to(elsewhere)
    (root / "train" / second / "linked.png").symlink_to(elsewhere / "1.jpg")
    (root / "train" / second / "broken.png").symlink_to(tmp_path / "nothing")
    for name in ("notes.txt", "a.dng"):
        (root / "train" / third / name).touch()
    listing = find(source, root)
    assert counts(listing) == {"train": (100, 1 + 3 + 98 * 2)}
    problem = "is neither a file nor a link to an existing file"
    assert fatal(listing) == [f"{second}/broken.png: {problem}"]
    assert f"{third}: skipped files that are not images: a.dng, notes.txt" in notes(listing)


def test_the_likelier_of_two_folders_is_taken(tmp_path, find, make_splits, published, fatal):
    for name in ("cifar-fs", "fc100"):
        make_splits(tmp_path / name, published(name))
    for name in ("cifar-fs", "fc100"):
        listing = find(SOURCES.get(name)(), tmp_path)
        assert fatal(listing) == []
        assert {s: list(c) for s, c in listing.classes.items()} == published(name)


def test_archives_for_each_split(tmp_path, find, make_splits, published, pack, counts, fatal):
    classes = published("cub")
    raw = tmp_path / "raw"
    raw.mkdir()
    for split in ("val", "test"):
        make_splits(tmp_path / "in", {split: classes[split]})
        for name in ("train", "val", "test"):
            if name != split:
                (tmp_path / "in" / name).rmdir() if (tmp_path / "in" / name).exists() else None
        pack(raw / f"cub_84_{split}.tar", tmp_path / "in")
    listing = find(SOURCES.get("cub")(), raw)
    assert counts(listing) == {"val": (50, 100), "test": (50, 100)}
    assert fatal(listing) == []


def test_a_class_that_is_there_twice(tmp_path, find, make_splits, published, notes, counts):
    classes = published("cub")
    root = make_splits(tmp_path, classes)
    make_splits(tmp_path, {"train": [classes["train"][0].lower()]})
    listing = find(SOURCES.get("cub")(), root)
    assert counts(listing)["train"] == (100, 200)
    assert any(
        "several folders contain this class; only one is used" in note for note in notes(listing)
    )
