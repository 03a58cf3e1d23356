"""Preparing a dataset: stores, problems, and full disks."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import pickle
import resource
import shutil
import signal
import struct
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alfa.data import Store, store_path
from alfa.data._prepare import PrepareProgress, prepare
from alfa.data.sources import SOURCES
from alfa.data.sources._base import Item, Listing, Problem, Source, Workspace
from alfa.errors import ConfigError, DataError


class Pets(Source):
    """Folders ``<split>/<class>/*``."""

    title = "Pets"
    size = 6
    layouts = ("train/cat/1.png",)

    def find(self, path: Path, *, work: Workspace) -> Listing:
        if not path.is_dir():
            raise DataError(f"there are no pets in {path}.")
        classes = {
            split.name: {
                folder.name: [
                    Item(f"{folder.name}/{file.name}", file.read_bytes)
                    for file in sorted(folder.iterdir())
                ]
                for folder in sorted(split.iterdir())
            }
            for split in sorted(path.iterdir())
        }
        return Listing(classes)


class Arrays(Source):
    """Classes of arrays in memory."""

    title = "Arrays"
    size = 4
    num_channels = 1
    mean, std = (0.5,), (0.5,)

    def __init__(self, classes: Mapping, problems=()) -> None:
        self.listing = Listing(
            {
                split: {
                    name: [
                        Item(f"{name}/{number}", lambda image=image: image)
                        for number, image in enumerate(images)
                    ]
                    for name, images in named.items()
                }
                for split, named in classes.items()
            },
            problems,
        )

    def find(self, path: Path, *, work: Workspace) -> Listing:
        return self.listing


def picture(seed: int, kind: str = "PNG", mode: str = "RGB", side: int = 6) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind)
    return file.getvalue()


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Two classes for training and one for test, 40, 5 and 3 images."""
    path = tmp_path / "pets"
    for number, (place, count) in enumerate(
        {"train/cat": 40, "train/dog": 5, "test/owl": 3}.items()
    ):
        (path / place).mkdir(parents=True)
        for image in range(count):
            (path / place / f"{image:02d}.png").write_bytes(picture(100 * number + image))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def run(pets: Path, root: Path) -> Callable[..., Store]:
    def prepare_pets(**options) -> Store:
        return prepare(Pets(), pets, **{"root": root, "name": "pets", **options})

    return prepare_pets


def files(store: Store | Path) -> dict[str, bytes]:
    path = store.path if isinstance(store, Store) else store
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def visible(root: Path) -> list[str]:
    """Return the visible stores."""
    return sorted(p.name for p in (root / "stores").glob("*") if not p.name.startswith("."))


def hidden(root: Path) -> list[str]:
    return sorted(p.name for p in (root / "stores").glob(".*"))


# --- stores


def test_a_store_holds_the_images_by_split_and_class(run, pets: Path, root: Path) -> None:
    store = run()
    assert store.path == store_path("pets", 6, root=root)
    assert store.index.counts() == {"train": (2, 45), "test": (1, 3)}
    expected = np.asarray(Image.open(pets / "train/dog/02.png")).transpose(2, 0, 1)
    assert np.array_equal(store.images[42], expected)
    assert store.items()[42] == "dog/02.png"
    assert len(store.items()) == 48
    assert store.verify() == []
    assert (visible(root), hidden(root)) == (["pets-6"], [])


def test_pixels_in_memory_are_stored_bit_by_bit(root: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (100, 4, 4), np.uint8)
    source = Arrays({"train": {"a": pixels[:70], "b": pixels[70:]}})
    store = prepare(source, tmp_path, root=root, name="arrays")
    assert np.array_equal(store.images[:, 0], pixels)


def test_the_name_is_that_of_the_source_by_default(pets: Path, root: Path) -> None:
    assert prepare(Pets(), pets, root=root).index.dataset == "Pets"


def test_the_name_of_the_source_is_kept_where_the_dataset_has_another(pets: Path, root) -> None:
    folder = SOURCES.get("folder")()
    assert prepare(folder, pets, root=root, name="folder", size=6).index.source == ""
    assert prepare(folder, pets, root=root, name="mine", size=6).index.source == "folder"
    # A class that is not registered has no name that could be looked up.
    assert prepare(Pets(), pets, root=root, name="others").index.source == ""


def test_the_files_do_not_depend_on_the_number_of_workers(run, tmp_path: Path) -> None:
    one, many = (run(workers=n, root=tmp_path / str(n)) for n in (1, 5))
    assert files(one) == files(many)


def test_sizes_stand_side_by_side(run, root: Path) -> None:
    run()
    assert run(size=4).images.shape == (48, 3, 4, 4)
    assert visible(root) == ["pets-4", "pets-6"]


def test_progress_is_told(run) -> None:
    told: list[PrepareProgress] = []
    run(on_progress=told.append)
    assert told[0].message.startswith("looking for images in ")
    counts = [progress.done for progress in told[1:]]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 48)
    assert {progress.total for progress in told[1:]} == {48}


def test_names_of_any_kind_are_listed_one_per_line(root: Path, tmp_path: Path) -> None:
    image = np.zeros((4, 4), np.uint8)
    source = Arrays({"train": {"a": [image]}})
    item = Item("a\nb/\x1b[2J\udcff\u00e9.png", lambda: image)
    source.listing = Listing({"train": {"odd": [item, item]}})
    store = prepare(source, tmp_path, root=root, name="odd")
    assert store.items() == ["a\\nb/\\x1b[2J\\udcff\u00e9.png"] * 2
    assert store.verify() == []


def test_memory_does_not_grow_with_the_dataset(root: Path, tmp_path: Path) -> None:
    class Large(Source):
        title, size = "Large", 64

        def find(self, path: Path, *, work: Workspace) -> Listing:
            def read() -> np.ndarray:
                return np.zeros((64, 64, 3), np.uint8)

            items = [Item(str(number), read) for number in range(4000)]
            return Listing({"train": {"one": items[:3000], "two": items[3000:]}})

    tracemalloc.start()
    try:
        store = prepare(Large(), tmp_path, root=root, name="large", workers=2)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert store.images.nbytes > 49e6
    assert most < 15e6


# --- existing stores


def test_a_store_that_is_there_is_left_alone(run) -> None:
    before = files(run())
    told: list[PrepareProgress] = []
    store = run(on_progress=told.append)
    assert files(store) == before
    assert "already has images of the same names; --force replaces it" in told[-1].message
    assert len(told) == 2


def test_a_store_of_other_images_is_not_overwritten(run, pets: Path, root: Path) -> None:
    before = files(run())
    (pets / "train/dog/00.png").unlink()
    with pytest.raises(DataError, match=r"already prepared from other images, .* --force"):
        run()
    assert files(root / "stores/pets-6") == before
    assert run(force=True).index.counts()["train"] == (2, 44)
    assert hidden(root) == []


def test_force_reads_everything_again(run, pets: Path) -> None:
    run()
    (pets / "train/dog/00.png").write_bytes((pets / "train/dog/01.png").read_bytes())
    store = run(force=True)
    assert np.array_equal(store.images[40], store.images[41])


def test_other_options_make_another_store(run, monkeypatch) -> None:
    run()
    for name, value in {"num_channels": 1, "mean": (0.5,), "std": (0.5,)}.items():
        monkeypatch.setattr(Pets, name, value)
    with pytest.raises(DataError, match=r"or with other options; replace it with --force"):
        run()
    assert run(force=True).images.shape == (48, 1, 6, 6)


def test_a_store_that_was_moved_away_by_a_killed_run_is_put_back(run, root: Path) -> None:
    store = run()
    store.path.rename(root / "stores/.pets-6.old")
    told: list[PrepareProgress] = []
    assert run(on_progress=told.append).verify() == []
    assert "already has images of the same names" in told[-1].message
    assert (visible(root), hidden(root)) == (["pets-6"], [])


def test_a_damaged_store_is_not_overwritten_without_force(run, root: Path) -> None:
    run()
    (root / "stores/pets-6/index.json").write_text("{}")
    with pytest.raises(DataError, match=r"re-run the command that prepared it \(with --force"):
        run()
    assert run(force=True).verify() == []


# --- problems


def test_all_problems_are_told_at_once_by_name(run, pets: Path, root: Path) -> None:
    (pets / "train/cat/07.png").write_bytes(picture(0)[:60])
    (pets / "train/dog/01.png").write_text("not an image")
    (pets / "train/ant").mkdir()
    for file in (pets / "test/owl").iterdir():
        file.write_bytes(b"")
    with pytest.raises(DataError) as caught:
        run()
    first, *lines = str(caught.value).split("\n")
    report = root / "reports/pets-6.txt"
    assert first == (
        "pets was not prepared because of 7 problems; fix them, or skip them with `--on-problem "
        f"skip`. All are listed in {report}:"
    )
    listed = [line.removeprefix("  - ") for line in lines]
    assert listed[0] == "train/ant: the class has no images"
    assert listed[1].startswith("cat/07.png: is damaged or truncated (")
    assert listed[2:] == [
        "dog/01.png: is not an image, or its format is not supported",
        "owl/00.png: is an empty file",
        "owl/01.png: is an empty file",
        "owl/02.png: is an empty file",
        "test/owl: none of the 3 images of the class can be used",
    ]
    assert report.read_text().splitlines() == listed
    assert visible(root) == []


def test_one_problem_is_one_sentence(run, pets: Path, root: Path) -> None:
    (pets / "train/cat/07.png").write_bytes(b"")
    told = (
        "pets was not prepared: cat/07.png: is an empty file; fix it, or skip it with "
        "`--on-problem skip`."
    )
    with pytest.raises(DataError) as caught:
        run()
    assert str(caught.value) == told
    assert not (root / "reports").exists()


def test_of_many_problems_twenty_are_shown(run, pets: Path, root: Path) -> None:
    for file in (pets / "train/cat").iterdir():
        file.write_bytes(b"")
    with pytest.raises(DataError, match="because of 41 problems") as caught:
        run()
    lines = str(caught.value).split("\n")[1:]
    assert len(lines) == 21
    assert lines[-1] == "  and 21 more"
    assert len((root / "reports/pets-6.txt").read_text().splitlines()) == 41


def test_an_image_bomb_is_told_by_name(run, pets: Path) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    head = struct.pack(">IIBBBBB", 10_000, 10_000, 8, 0, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    (pets / "train/cat/07.png").write_bytes(bomb)
    with pytest.raises(DataError, match=r"cat/07\.png: declares .*it may be a decompression bomb"):
        run()


def test_what_cannot_be_used_is_left_out_on_demand(run, pets: Path, root: Path) -> None:
    (pets / "train/cat/07.png").write_bytes(b"")
    (pets / "train/ant").mkdir()
    for file in (pets / "test/owl").iterdir():
        file.write_bytes(b"")
    store = run(on_problem="skip")
    assert store.index.counts() == {"train": (2, 44)}
    assert [line.partition(":")[0] for line in store.index.left_out] == [
        "train/ant",
        "cat/07.png",
        "owl/00.png",
        "owl/01.png",
        "owl/02.png",
        "test/owl",
    ]
    assert store.verify() == []
    assert "cat/07.png" not in store.items()
    assert len(store.items()) == 44
    assert not (root / "reports").exists()


def test_images_of_mixed_modes_and_sizes_are_told_and_used(run, pets: Path) -> None:
    (pets / "train/dog/00.png").write_bytes(picture(0, mode="L"))
    (pets / "train/dog/01.png").write_bytes(picture(0, mode="CMYK", kind="TIFF"))
    (pets / "train/dog/02.png").write_bytes(picture(0, mode="RGBA"))
    (pets / "train/dog/03.png").write_bytes(picture(0, mode="1"))
    (pets / "train/dog/04.png").write_bytes(picture(0, side=31))
    store = run()
    assert store.index.left_out == []
    assert store.index.changed == [
        "dog/00.png: gray converted to RGB",
        "dog/01.png: CMYK converted to RGB",
        "dog/02.png: RGBA converted to RGB",
        "dog/03.png: 1-bit converted to RGB",
    ]


def test_problems_of_the_listing_count(root: Path, tmp_path: Path) -> None:
    image = np.zeros((4, 4), np.uint8)
    problems = [
        Problem("split.json", "it names an unknown class 'unicorn'"),
        Problem("train/a", "the class has half of its images only", fatal=False),
        Problem("train/b", "the class has no images, says the source"),
    ]
    source = Arrays({"train": {"a": [image], "b": []}}, problems)
    with pytest.raises(DataError, match="2 problems") as caught:
        prepare(source, tmp_path, root=root, name="arrays")
    assert "split.json: it names an unknown class 'unicorn'" in str(caught.value)
    store = prepare(source, tmp_path, root=root, name="arrays", on_problem="skip")
    assert store.index.left_out == [str(problems[0]), str(problems[2])]
    assert store.index.changed == [str(problems[1])]


@pytest.mark.parametrize("on_problem", ["stop", "skip"])
def test_nothing_usable_is_refused(root: Path, tmp_path: Path, on_problem: str) -> None:
    bad = Arrays({"train": {"a": [np.zeros((0, 4), np.uint8)] * 3}})
    with pytest.raises(DataError, match="no image is usable"):
        prepare(bad, tmp_path, root=root, name="bad", on_problem=on_problem)
    with pytest.raises(DataError, match=r"found no images of none in .*\.$"):
        prepare(Arrays({}), tmp_path, root=root, name="none", on_problem=on_problem)
    assert visible(root) == []


def test_the_layouts_are_told_where_nothing_is(root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"supported layouts:\n  - train/cat/1\.png"):
        prepare(Pets(), tmp_path / "empty", root=root)


def test_nothing_is_left_behind_where_nothing_was_found(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there are no pets in"):
        prepare(Pets(), tmp_path / "gone", root=root)
    assert (visible(root), hidden(root)) == ([], [])


def test_an_image_that_cannot_be_read_is_a_problem_of_its_own(root: Path, tmp_path: Path) -> None:
    def fail() -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    source = Arrays({"train": {"a": [np.zeros((4, 4), np.uint8)]}})
    items = [*source.listing.classes["train"]["a"], Item("a/broken", fail)]
    source.listing = Listing({"train": {"a": items}})
    with pytest.raises(DataError, match=r"a/broken: cannot be read \(Input/output error\)"):
        prepare(source, tmp_path, root=root, name="arrays")


def test_a_fault_of_the_program_is_not_taken_for_one_of_the_data(root, tmp_path) -> None:
    def fail() -> bytes:
        raise ZeroDivisionError

    source = Arrays({})
    source.listing = Listing({"train": {"a": [Item("a/0", fail)]}})
    with pytest.raises(ZeroDivisionError):
        prepare(source, tmp_path, root=root, name="arrays")


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b"])
def test_a_name_that_is_no_folder_is_refused(pets: Path, root: Path, name: str) -> None:
    if name:
        with pytest.raises(ConfigError, match="`name` must contain only"):
            prepare(Pets(), pets, root=root, name=name)
    assert not root.exists()


def test_options_out_of_range_are_refused(run, root: Path) -> None:
    with pytest.raises(ConfigError, match="`size` must be at least 1, got 0"):
        run(size=0)
    with pytest.raises(ConfigError, match="Did you mean 'skip'"):
        run(on_problem="skipp")
    assert not root.exists()


# --- disks


@pytest.fixture
def small_files():
    """Writing beyond 1000 bytes fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))

    def lift() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    yield lift
    lift()
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_one_sentence_and_can_be_gone_on_with(
    run, root: Path, tmp_path: Path, small_files
) -> None:
    with pytest.raises(DataError) as caught:
        run()
    small_files()
    assert str(caught.value) == (
        f"pets could not be prepared: File too large ({root / 'stores'}); free disk space and run "
        "the command again to resume."
    )
    assert visible(root) == []
    assert files(run()) == files(run(root=tmp_path / "other"))


def test_too_little_room_is_told_before_anything_is_decoded(run, root: Path, monkeypatch) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage)
    with pytest.raises(DataError, match=r"needs 0\.0 GB more in .* are free; free disk space"):
        run()
    assert visible(root) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission_is_one_sentence(run, root: Path) -> None:
    root.mkdir()
    root.chmod(0o500)
    with pytest.raises(DataError, match="could not be prepared: Permission denied"):
        run()
    root.chmod(0o700)


def test_a_folder_below_a_file_is_one_sentence(run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match=r"could not be prepared: (Not a directory|File exists)"):
        run(root=tmp_path / "file")


# --- real data


def digest(pixels: np.ndarray) -> bytes:
    return hashlib.sha256(pixels.tobytes()).digest()


def test_the_store_of_cifar_is_pixel_identical_to_its_source(tmp_path: Path) -> None:
    place = os.environ.get("ALFA_TEST_DATA")
    if place is None:
        pytest.skip("ALFA_TEST_DATA must be the folder of the unpacked real datasets")
    raw = Path(place) / "cifar-100-python"
    if not raw.is_dir():
        pytest.skip(f"{place} has no cifar-100-python")
    store = prepare(SOURCES.get("cifar-fs")(), raw, root=tmp_path)
    expected: Counter[tuple[str, bytes]] = Counter()
    for part in ("train", "test"):
        table, meta = (
            pickle.loads((raw / name).read_bytes(), encoding="bytes") for name in (part, "meta")
        )
        names = [meta[b"fine_label_names"][label].decode() for label in table[b"fine_labels"]]
        expected.update(zip(names, map(digest, table[b"data"]), strict=True))
    found = Counter(
        (entry.name, digest(pixels))
        for entry in store.index.classes
        for pixels in store.images[entry.first : entry.first + entry.count]
    )
    assert found == expected
    assert store.index.counts() == {"train": (64, 38_400), "val": (16, 9_600), "test": (20, 12_000)}
