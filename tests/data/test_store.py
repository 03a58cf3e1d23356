"""Stores open quickly and report damage."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from alfa.data import Store
from alfa.data._store import Index, StoredClass
from alfa.errors import DataError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of three classes."""
    from alfa.data._draft import Draft, Entry

    place = tmp_path / "stores" / "tiny-4"
    pixels = np.arange(6 * 3 * 4 * 4, dtype=np.uint8).reshape(6, 3, 4, 4)
    with Draft(place, shape=(3, 4, 4), key="") as draft:
        draft.resume_after(0)
        for split, name, first, count in (
            ("train", "cat", 0, 3),
            ("train", "dog", 3, 2),
            ("test", "owl", 5, 1),
        ):
            draft.write(pixels[first : first + count])
            draft.end_class(Entry(split, name, ""))
        classes, first = [], 0
        for entry in draft.entries:
            place_of = (entry.split, entry.name, first, entry.count, entry.checksum)
            classes.append(StoredClass(*place_of))
            first += entry.count
        index = Index("tiny", 4, 3, (0.5,) * 3, (0.5,) * 3, classes)
        draft.finish(index, (f"{number}.png" for number in range(6)))
    return place


def edit(path: Path, **changes) -> None:
    content = json.loads((path / "index.json").read_text())
    (path / "index.json").write_text(json.dumps({**content, **changes}))


def test_a_store_is_what_was_written(path: Path) -> None:
    store = Store.open(path)
    images = store.image_set()
    assert images.name == "tiny"
    assert images.shape == (3, 4, 4)
    assert list(images.splits) == ["train", "test"]
    assert list(images.splits["train"].names) == ["cat", "dog"]
    assert list(images.splits["train"].first) == [0, 3]
    assert list(images.splits["test"].count) == [1]
    assert store.items() == [f"{number}.png" for number in range(6)]
    assert store.index.counts() == {"train": (2, 5), "test": (1, 1)}
    assert np.array_equal(np.load(path / "images.npy"), store.images)


def test_images_cannot_be_changed_by_accident(path: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        Store.open(path).images[0] = 0


def test_verify_finds_nothing_in_a_good_store(path: Path) -> None:
    done: list[int] = []
    assert Store.open(path).verify(done.append) == []
    assert done == [3, 5, 6]


def test_verify_names_every_damaged_class(path: Path) -> None:
    content = bytearray((path / "images.npy").read_bytes())
    content[-1] ^= 1
    content[-4 * 48] ^= 1
    (path / "images.npy").write_bytes(bytes(content))
    assert Store.open(path).verify() == [
        "train/cat: the checksum of the pixels is wrong.",
        "test/owl: the checksum of the pixels is wrong.",
    ]


def test_verify_reads_the_names_too(path: Path) -> None:
    (path / "items.txt").write_text("0.png\n")
    assert Store.open(path).verify() == ["items.txt: the checksum of the names is wrong."]
    (path / "items.txt").unlink()
    assert Store.open(path).verify() == ["items.txt: cannot be read (No such file or directory)."]


def test_images_of_a_split_are_known_by_their_names(path: Path) -> None:
    store = Store.open(path)
    before = {split: store.names_digest(split) for split in ("train", "val", "test")}
    assert len(set(before.values())) == 3
    names = store.items()
    # Another name, another order, or other classes, but of this split only.
    for changed in (["new.png", *names[1:]], [names[1], names[0], *names[2:]]):
        (path / "items.txt").write_text("".join(f"{name}\n" for name in changed))
        assert Store.open(path).names_digest("train") != before["train"]
        assert Store.open(path).names_digest("test") == before["test"]
    (path / "items.txt").write_text("".join(f"{name}\n" for name in names))
    classes = json.loads((path / "index.json").read_text())["classes"]
    edit(path, classes=[{**classes[0], "name": "lion"}, *classes[1:]])
    assert Store.open(path).names_digest("train") != before["train"]
    # Not by their pixels, which another size changes.
    edit(path, classes=[{**entry, "checksum": ""} for entry in classes])
    assert Store.open(path).names_digest("train") == before["train"]


def test_names_that_cannot_be_read_are_told(path: Path) -> None:
    (path / "items.txt").write_bytes(b"\xff\n")
    with pytest.raises(DataError, match=r"items\.txt cannot be read \(.*; re-run the command"):
        Store.open(path).names_digest("train")
    (path / "items.txt").unlink()
    with pytest.raises(DataError, match=r"items\.txt cannot be read \(No such file"):
        Store.open(path).names_digest("train")


def test_what_a_store_was_made_from_is_known_where_its_name_is_another(path: Path) -> None:
    assert Store.open(path).image_set().source == ""
    digest = Store.open(path).index.digest()
    edit(path, source="md-flower")
    store = Store.open(path)
    assert store.image_set().source == "md-flower"
    assert store.image_set().like((3, 8, 8), (0.5,) * 3, (0.5,) * 3).source == "md-flower"
    assert Index.from_json(store.index.to_json()) == store.index
    assert store.index.digest() == digest
    edit(path, source=["md-flower"])
    with pytest.raises(
        DataError, match=r"`source` in index\.json must be a name, got \['md-flower'\]"
    ):
        Store.open(path)


@pytest.mark.parametrize("key", ["mean", "std"])
@pytest.mark.parametrize("values", [[None] * 3, ["a"] * 3, [0.5], [float("nan")] * 3])
def test_a_normalisation_that_is_none_is_refused(path: Path, key: str, values: list) -> None:
    edit(path, **{key: values})
    with pytest.raises(
        DataError, match=rf"`{key}` in index\.json must be one number for each channel"
    ):
        Store.open(path)


@pytest.mark.parametrize("name", ["index.json", "images.npy"])
def test_a_missing_file_is_told(path: Path, name: str) -> None:
    (path / name).unlink()
    told = f"{path} is not a prepared dataset: it has no {name}; re-run the command"
    with pytest.raises(DataError, match=told):
        Store.open(path)


def test_a_folder_that_is_no_store_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "gone", tmp_path / "file"):
        with pytest.raises(DataError, match=r"is not a prepared dataset: it has no index\.json"):
            Store.open(place)


def test_a_cut_off_file_is_told(path: Path) -> None:
    content = (path / "images.npy").read_bytes()
    for length in (len(content) - 1, 200, 50, 0):
        (path / "images.npy").write_bytes(content[:length])
        with pytest.raises(DataError, match=r"cannot be used \(.+\); re-run the command"):
            Store.open(path)


def test_a_pickle_is_not_opened(path: Path) -> None:
    np.save(path / "images.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="cannot be used"):
        Store.open(path)


def test_another_shape_is_told(path: Path) -> None:
    np.save(path / "images.npy", np.zeros((6, 3, 4, 5), np.uint8))
    with pytest.raises(DataError, match=r"uint8 \[6, 3, 4, 5\], not uint8 \[6, 3, 4, 4\]"):
        Store.open(path)
    np.save(path / "images.npy", np.zeros((6, 3, 4, 4), np.int8))
    with pytest.raises(DataError, match="its images are int8"):
        Store.open(path)


def test_another_format_is_told(path: Path) -> None:
    edit(path, format=99, something="new")
    with pytest.raises(DataError, match="it has format 99, but this version of alfa reads 1"):
        Store.open(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "a": 2}'])
def test_a_damaged_index_is_told(path: Path, text: str) -> None:
    (path / "index.json").write_text(text)
    with pytest.raises(DataError, match=r"cannot be used \(.+\); re-run the command"):
        Store.open(path)


@pytest.mark.parametrize("change", [{"first": 1}, {"count": 0}, {"split": "trian"}])
def test_classes_that_do_not_fit_are_told(path: Path, change) -> None:
    classes = json.loads((path / "index.json").read_text())["classes"]
    classes[1] |= change
    edit(path, classes=classes)
    with pytest.raises(
        DataError, match=r"class dog in index\.json is inconsistent with the others"
    ):
        Store.open(path)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_a_hundred_thousand_images_are_opened_without_reading_them(tmp_path: Path) -> None:
    shape = (100_000, 3, 84, 84)
    with (tmp_path / "images.npy").open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        # Two gigabytes of nothing, which take no room on the disk.
        file.truncate(file.tell() + int(np.prod(shape)))
    classes = [StoredClass("train", f"class{n}", 200 * n, 200, "0" * 64) for n in range(500)]
    index = Index("large", 84, 3, (0.5,) * 3, (0.5,) * 3, classes)
    (tmp_path / "index.json").write_text(index.to_json())

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    times, before = [], resident()
    for _ in range(5):
        began = time.perf_counter()
        images = Store.open(tmp_path).image_set()
        times.append(time.perf_counter() - began)
    assert len(images.images) == 100_000
    assert min(times) < 0.05
    assert resident() - before < 20e6
