import pickle

import numpy as np
import pytest

from alfa.data.sources import SOURCES
from alfa.errors import DataError

PER_CLASS = {"train": 3, "test": 2}


@pytest.fixture(params=["cifar-fs", "fc100"])
def name(request):
    return request.param


@pytest.fixture
def source(name):
    return SOURCES.get(name)()


@pytest.fixture
def classes(published):
    return sorted(name for names in published("fc100").values() for name in names)


@pytest.fixture
def tables(classes):
    rng = np.random.default_rng(0)
    made = {}
    for part, count in PER_CLASS.items():
        labels = rng.permutation(np.repeat(np.arange(100), count)).tolist()
        made[part] = {
            b"filenames": [f"{classes[k]}_{part}_{n}.png".encode() for n, k in enumerate(labels)],
            b"fine_labels": labels,
            b"coarse_labels": [0] * len(labels),
            b"data": rng.integers(0, 256, (len(labels), 3072), dtype=np.uint8),
        }
    made["meta"] = {b"fine_label_names": [name.encode() for name in classes]}
    return made


@pytest.fixture
def folder(tmp_path, tables):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for part, content in tables.items():
        (folder / part).write_bytes(pickle.dumps(content, protocol=2))
    return folder


def expected(source, images=5):
    return {split: (num, images * num) for split, (num, _) in source.published.items()}


def test_the_pickles(folder, tables, find, source, counts, fatal, published, name):
    for path in (folder, folder.parent):
        listing = find(source, path)
        assert counts(listing) == expected(source)
        assert fatal(listing) == []
    assert {split: list(found) for split, found in listing.classes.items()} == published(name)


def test_the_pixels_are_those_of_the_pickle(folder, tables, find, source):
    listing = find(source, folder)
    seen = 0
    for part in PER_CLASS:
        table = tables[part]
        for file, row in zip(table[b"filenames"], table[b"data"], strict=True):
            label = f"{file.decode().rsplit('_', 2)[0]}/{file.decode()}"
            (item,) = [
                item
                for found in listing.classes.values()
                for item in found.get(label.split("/")[0], ())
                if item.name == label
            ]
            pixels = item.read()
            assert pixels.shape == (32, 32, 3)
            np.testing.assert_array_equal(pixels.transpose(2, 0, 1).ravel(), row)
            seen += 1
    assert seen == 500


def test_the_order_does_not_depend_on_that_of_the_file(folder, tables, find, source):
    before = find(source, folder)
    for part in PER_CLASS:
        order = np.random.default_rng(1).permutation(len(tables[part][b"data"]))
        table = {
            key: value[order] if key == b"data" else [value[n] for n in order]
            for key, value in tables[part].items()
        }
        (folder / part).write_bytes(pickle.dumps(table, protocol=2))
    after = find(source, folder)
    for split, found in before.classes.items():
        for name, items in found.items():
            others = after.classes[split][name]
            assert [item.name for item in items] == [item.name for item in others]
            for one, other in zip(items, others, strict=True):
                np.testing.assert_array_equal(one.read(), other.read())


@pytest.mark.parametrize("archive", ["cifar-100-python.tar.gz", "CIFAR100.zip"])
def test_the_archive(tmp_path, folder, find, source, counts, pack, archive):
    (tmp_path / "in").mkdir()
    folder.rename(tmp_path / "in" / folder.name)
    path = pack(tmp_path / archive, tmp_path / "in")
    for where in (path, tmp_path):
        assert counts(find(source, where)) == expected(source)


def test_names_of_classes_are_known_without_the_file_that_has_them(folder, find, source, counts):
    before = find(source, folder)
    (folder / "meta").unlink()
    after = find(source, folder)
    for split, found in before.classes.items():
        assert [i.name for v in found.values() for i in v] == [
            i.name for v in after.classes[split].values() for i in v
        ]


def test_half_of_it(folder, find, source, counts, notes, fatal):
    (folder / "test").unlink()
    listing = find(source, folder)
    assert counts(listing) == expected(source, images=3)
    assert fatal(listing) == []
    told = notes(listing)
    assert "cifar-100-python/test: the file and its images are missing" in told
    num_classes, num_images = source.published["train"]
    assert (
        f"train: {3 * num_classes} images in {num_classes} classes, but the published split has "
        f"{num_images:,} in {num_classes}"
    ) in told


@pytest.mark.parametrize(
    "change",
    [
        {b"data": np.zeros((3, 3072), np.float32)},
        {b"data": np.zeros((300, 3071), np.uint8)},
        {b"data": [1, 2]},
        {b"fine_labels": [100] * 300},
        {b"fine_labels": [-1] * 300},
        {b"fine_labels": ["apple"] * 300},
        {b"filenames": [b"a.png"]},
    ],
    ids=["float", "columns", "list", "label", "negative", "words", "names"],
)
def test_a_broken_pickle(folder, tables, find, source, change):
    (folder / "train").write_bytes(pickle.dumps({**tables["train"], **change}, protocol=2))
    with pytest.raises(DataError, match=r"cifar-100-python/train must have `data`, a uint8 array"):
        find(source, folder)


@pytest.mark.parametrize("names", [5, [1, 2], {"apple": 1}])
def test_names_of_classes_that_are_none(folder, find, source, names):
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": names}, protocol=2))
    with pytest.raises(DataError, match=r"no list of names in the entry 'fine_label_names'"):
        find(source, folder)


def test_a_damaged_pickle(folder, find, source):
    content = (folder / "test").read_bytes()
    (folder / "test").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"cifar-100-python/test is damaged"):
        find(source, folder)


def test_classes_that_no_split_has(folder, tables, find, source, fatal):
    names = [
        name.encode()
        for name in sorted({"zebra", *map(bytes.decode, tables["meta"][b"fine_label_names"][1:])})
    ]
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": names}, protocol=2))
    assert "zebra: no split has a class of this name" in fatal(find(source, folder))


def test_class_folders_with_the_class_train(tmp_path, find, source, make_classes, classes, counts):
    root = make_classes(tmp_path / "data", classes)
    assert counts(find(source, root)) == expected(source, images=2)
