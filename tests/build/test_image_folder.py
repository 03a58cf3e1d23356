"""Scan a user's folder of images, and compose an experiment on it."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alfa.build._image_folder import (
    ImageFolder,
    choose_backbone,
    describe_counts,
    experiment_for,
    infer_size_and_channels,
    scan_image_folder,
    split_sizes,
    task_sizes,
    title_of,
    training_advice,
    usable_counts,
)
from alfa.config import Choices
from alfa.data import Crop, FeatureSet, ImageFormat, Signature, data_folder, decode, prepare
from alfa.data._store import Index, StoredClass
from alfa.data.sources import Item, Workspace
from alfa.data.sources._folder import split_by_ratio
from alfa.errors import ConfigError, DataError
from alfa.testing import register_small_backbone


@pytest.fixture
def classes(tmp_path: Path) -> Callable[..., Path]:
    """Create class folders with the given numbers of empty files."""

    def make(folder: str, counts: Iterable[int], first: int = 0) -> Path:
        for number, count in enumerate(counts, first):
            place = tmp_path / folder / f"class-{number:02d}"
            place.mkdir(parents=True)
            for image in range(count):
                (place / f"{image:02d}.png").touch()
        return tmp_path / folder

    return make


@pytest.fixture
def scan(tmp_path: Path) -> Callable[[Path], ImageFolder]:
    return lambda path: scan_image_folder(path, work=Workspace(tmp_path / "work"))


def sizes(data: ImageFolder) -> dict[str, int]:
    return {split: len(counts) for split, counts in data.counts.items()}


def image(mode: str, side: tuple[int, int] = (8, 8), color: object = None, file: str = "PNG"):
    """Create an image item."""
    import io

    made = io.BytesIO()
    Image.new(mode, side, color).save(made, file)
    return Item("some", made.getvalue)


# --- splits


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (6, (2, 2, 2)),
        (7, (3, 2, 2)),
        (10, (6, 2, 2)),
        (15, (9, 3, 3)),
        (25, (15, 5, 5)),
        (50, (32, 8, 10)),
        (100, (64, 16, 20)),
        (1000, (640, 160, 200)),
    ],
)
def test_classes_are_shared_out_so_that_every_split_can_give_tasks(number, expected) -> None:
    assert split_sizes(number) == expected


def test_every_number_of_classes_is_shared_out_exactly_as_planned() -> None:
    for number in range(6, 200):
        planned = split_sizes(number)
        assert sum(planned) == number
        assert min(planned) >= 2
        ratio = [count / number for count in planned]
        drawn = split_by_ratio([str(n) for n in range(number)], ratio, 0)
        assert tuple(map(len, drawn.values())) == planned


def test_too_few_classes_are_refused(classes, scan) -> None:
    path = classes("pets", [5] * 5 + [1])
    with pytest.raises(DataError) as caught:
        scan(path)
    assert str(caught.value) == (
        f"{path} has 5 classes with at least 2 images, but needs 6: 2 each for training, "
        "validation, and test. Add class folders, or adapt a run that was trained on other data to "
        "these classes with `alfa.FewShotClassifier`."
    )


def test_folders_of_splits_are_kept(classes, scan) -> None:
    classes("pets/train", [4] * 5)
    classes("pets/val", [4] * 2, first=5)
    path = classes("pets/test", [4] * 3, first=7).parent
    data = scan(path)
    assert sizes(data) == {"train": 5, "val": 2, "test": 3}
    assert not data.notes


def test_a_split_with_too_few_classes_is_refused(classes, scan) -> None:
    classes("pets/train", [4] * 5)
    path = classes("pets/test", [4] * 3, first=7).parent
    with pytest.raises(DataError, match=r"0 classes with at least 2 images for val, but each of"):
        scan(path)
    classes("pets/val", [4, 1], first=5)
    with pytest.raises(DataError, match=r"1 class with at least 2 images for val"):
        scan(path)


@pytest.mark.parametrize("splits", [["train", "test"], ["train", "val", "test"], ["train"]])
def test_folders_that_hold_the_same_classes_are_put_together(classes, scan, splits) -> None:
    for split in splits:
        classes(f"pets/{split}", [6] * 10)
    data = scan(classes("pets", []))
    assert sizes(data) == {"train": 6, "val": 2, "test": 2}
    assert all(count == 6 * len(splits) for counts in data.counts.values() for count in counts)
    (note,) = data.notes
    assert note.startswith(f"the folders ({', '.join(sorted(splits))}) do not separate training")


# --- classes of different sizes


def test_a_few_small_classes_are_left_out(classes, scan) -> None:
    data = scan(classes("pets", [30, 3, *[25] * 18, 12]))
    assert sizes(data) == {"train": 12, "val": 4, "test": 4}
    assert min(min(counts) for counts in data.counts.values()) == 12
    assert data.notes == ["skipped 1 class with fewer than 10 images: class-01"]


def test_class_folders_without_images_do_not_change_how_the_others_are_shared_out(
    classes, scan
) -> None:
    data = scan(classes("pets", [0, 4, 0, 4, 4, 0, 4, 4, 4, 0]))
    assert sizes(data) == {"train": 2, "val": 2, "test": 2}


def test_folders_inside_class_folders_are_told_of(classes, scan) -> None:
    path = classes("pets", [4] * 6)
    for inner in ("class-00/old", "class-00/new", "class-03/more"):
        (path / inner).mkdir()
    assert scan(path).notes == [
        "skipped folders inside 2 classes, because a class contains only the images directly in "
        "its folder: class-00 (new, old), class-03 (more)"
    ]


def test_small_classes_stay_where_there_are_many(classes, scan) -> None:
    data = scan(classes("pets", [30] * 5 + [4] * 5))
    assert sum(sizes(data).values()) == 10
    assert not data.notes


def test_a_class_of_one_image_is_left_out_however_many_there_are(classes, scan) -> None:
    data = scan(classes("pets", [3] * 7 + [1] * 7))
    assert sum(sizes(data).values()) == 7
    assert "7 classes with fewer than 2 images: class-07" in data.notes[0]


@pytest.mark.parametrize(
    ("smallest", "shot", "num_query"),
    [(2, 1, 1), (3, 1, 2), (7, 3, 4), (10, 5, 5), (20, 5, 15), (600, 5, 15)],
)
def test_tasks_are_as_large_as_the_smallest_class_allows(smallest, shot, num_query) -> None:
    counts = {"train": [700, 800, 900, 750, 1000, 900], "val": [smallest, 900], "test": [600] * 3}
    assert task_sizes(counts) == (2, shot, num_query)
    assert task_sizes({split: [smallest] * 9 for split in counts})[0] == 5


# --- prepared images


def index(**classes: int) -> Index:
    """Create an index of classes named after their split, with the given numbers of images."""
    entries = [StoredClass(name.partition("_")[0], name, 0, n, "") for name, n in classes.items()]
    return Index("pets", 8, 3, (0.5,) * 3, (0.5,) * 3, tuple(entries))


ENOUGH = {"train_a": 4, "train_b": 3, "val_a": 2, "val_b": 2, "test_a": 9, "test_b": 2}


def test_the_images_that_are_left_are_counted(tmp_path) -> None:
    assert usable_counts(index(**ENOUGH), tmp_path) == {
        "train": [4, 3],
        "val": [2, 2],
        "test": [9, 2],
    }


def test_classes_of_which_too_little_is_left_are_named(tmp_path) -> None:
    with pytest.raises(DataError) as caught:
        usable_counts(index(**{**ENOUGH, "val_a": 1, "val_c": 2, "train_c": 1}), tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} has 2 classes with fewer than 2 usable images: val/val_a, train/train_c. "
        "Repair the images, or remove these folders."
    )
    lost = {name: count for name, count in ENOUGH.items() if name != "val_b"}
    with pytest.raises(DataError, match="1 class with at least 2 images for val, but each of"):
        usable_counts(index(**lost), tmp_path)


# --- images


@pytest.mark.parametrize(
    ("sides", "expected"),
    [([8], 32), ([32, 32, 500], 32), ([51], 32), ([52], 84), ([28, 105, 105], 84), ([300], 84)],
)
def test_the_side_follows_the_median_of_the_images(sides, expected) -> None:
    assert infer_size_and_channels([image("RGB", (side, side)) for side in sides])[0] == expected


def test_a_long_image_counts_by_its_area() -> None:
    assert infer_size_and_channels([image("L", (16, 64))])[0] == 32


@pytest.mark.parametrize(
    ("items", "num_channels"),
    [
        ([image("L"), image("1"), image("LA"), image("I;16")], 1),
        ([image("RGB", color=(90, 90, 90)), image("RGBA", color=(9, 9, 9, 100))], 1),
        ([image("RGB", (40, 30), color=(90, 91, 90), file="JPEG"), image("P")], 1),
        ([image("L"), image("RGB", color=(90, 120, 90))], 3),
    ],
)
def test_images_are_grey_if_all_are(items, num_channels) -> None:
    assert infer_size_and_channels(items)[1] == num_channels


def test_unreadable_images_are_skipped() -> None:
    bad = [Item("bad", lambda: b""), Item("bad", lambda: b"rubbish")]
    assert infer_size_and_channels([*bad, image("L")]) == (32, 1)
    assert infer_size_and_channels(bad) == (84, 3)


def test_a_sample_of_many_images_is_read() -> None:
    read = []
    one = image("L")
    items = [Item(str(n), lambda n=n: read.append(n) or one.read()) for n in range(2000)]
    assert infer_size_and_channels(items) == (32, 1)
    assert len(read) == 500
    assert (read[0], read[-1]) == (0, 1999)


# --- names


@pytest.mark.parametrize(
    ("name", "title"),
    [("pets", "pets"), ("My pets (old)", "My-pets-old"), ("..", None), ("été", "été"), ("$", None)],
)
def test_a_folder_gives_its_name(tmp_path, name, title) -> None:
    expected = title or (tmp_path.parent.name if name == ".." else "images")
    assert title_of(tmp_path / name) == expected


def test_an_archive_gives_its_name(tmp_path) -> None:
    (tmp_path / "my pets.tar.gz").touch()
    assert title_of(tmp_path / "my pets.tar.gz") == "my-pets"


def test_the_dataset_has_another_name_after_any_change(classes, scan, tmp_path) -> None:
    path = classes("pets", [2] * 6)
    names = [scan(path).dataset]
    assert scan(path).dataset == names[0]
    moved = path.rename(tmp_path / "moved")
    assert scan(moved).dataset == names[0].replace("pets", "moved")
    path = moved.rename(path)
    (path / "class-00/00.png").write_bytes(b"1")
    names.append(scan(path).dataset)
    os.utime(path / "class-00/00.png", ns=(0, 0))
    names.append(scan(path).dataset)
    (path / "class-01/more.png").touch()
    names.append(scan(path).dataset)
    assert len(set(names)) == 4
    assert all(name.startswith("pets-") for name in names)


def test_an_archive_has_the_name_of_its_content(classes, tmp_path) -> None:
    path = classes("pets", [2] * 6)
    archive = tmp_path / "pets.zip"
    names = []
    for run in range(3):
        if run == 2:
            (path / "class-00/00.png").write_bytes(b"1")
        with zipfile.ZipFile(archive, "w") as file:
            for image_file in sorted(path.rglob("*.png")):
                file.write(image_file, image_file.relative_to(path))
        work = tmp_path / f"work-{run}"
        names.append(scan_image_folder(archive, work=Workspace(work)).dataset)
        assert work.is_dir()
    assert names[0] == names[1] != names[2]


# --- descriptions


def counts(train: int, images: int = 20) -> dict[str, list[int]]:
    return {"train": [images] * train, "val": [images] * 2, "test": [images] * 3}


def test_counts_are_described() -> None:
    assert describe_counts(counts(600)) == (
        "605 classes of 20 images (12,100 images): 600 for training, 2 for validation, and 3 for "
        "test"
    )
    assert "7 classes of 4 to 9 images (43 images)" in describe_counts(
        {"train": [4, 9], "val": [5, 6], "test": [7, 7, 5]}
    )


@pytest.mark.parametrize(
    ("train", "images", "told"),
    [
        (2, 500, "meta-training on 2 classes hardly pays off, because it needs 20 or more"),
        (19, 20, "adapt a run that was trained on other data"),
        (20, 20, "may pay off; it does with 64 classes of 20 images"),
        (64, 19, "may pay off"),
        (63, 20, "may pay off"),
        (64, 20, "miniImageNet and CIFAR-FS have no more classes, so meta-training pays off"),
    ],
)
def test_training_advice(train, images, told) -> None:
    assert told in training_advice(counts(train, images))


# --- the experiment


def test_the_model_serves_for_single_images_and_any_number_of_classes() -> None:
    experiment = experiment_for("pets-1", counts(30), size=32)
    assert (experiment.init.name, experiment.rule.name) == ("prototype-head", "alfa")
    assert experiment.inner.batch_norm == "inductive"
    assert experiment.tasks.options == {
        "dataset": "pets-1",
        "size": 32,
        "way": 2,
        "shot": 5,
        "num_query": 15,
        "augment": False,
    }
    assert (experiment.outer.num_iterations, experiment.outer.validate_every) == (2000, 250)
    assert (experiment.outer.num_val_tasks, experiment.test.num_tasks) == (100, 200)


def test_any_setting_is_overridden() -> None:
    changes = ["outer.num_iterations=7", "rule.name=sgd", "tasks.shot=1", "seed=4"]
    experiment = experiment_for("pets-1", counts(30), size=32, overrides=changes)
    assert experiment.outer.num_iterations == 7
    assert (experiment.rule.name, experiment.tasks.options["shot"]) == ("sgd", 1)
    assert experiment.seed == 4


def test_another_dataset_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"tasks.dataset is 'cub', but the images come from a folder"
    ):
        experiment_for("pets-1", counts(30), size=32, overrides=["tasks.dataset=cub"])


def test_pixels_are_stored_in_the_channels_that_were_found(classes, scan) -> None:
    path = classes("pets", [2] * 6)
    rng = np.random.default_rng(0)
    for file in path.rglob("*.png"):
        Image.fromarray(rng.integers(0, 256, (9, 9), np.uint8)).save(file)
    source = scan(path).source
    assert (source.size, source.num_channels) == (32, 1)
    assert (source.mean, source.std) == ((0.5,), (0.5,))


# --- pretrained backbones


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> str:
    """A backbone that needs no weights, in place of the default one."""
    name = register_small_backbone()
    monkeypatch.setattr("alfa.build._image_folder.DEFAULT_BACKBONE", name)
    return name


def photos(folder: Path, *, gray: bool = False) -> Path:
    """Save two photos of different aspect ratios in each of six classes."""
    rng = np.random.default_rng(0)
    for number in range(6):
        for image, (height, width) in enumerate([(40, 60), (70, 33)]):
            place = folder / f"class-{number}"
            place.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 256, (height, width) if gray else (height, width, 3), np.uint8)
            Image.fromarray(pixels).save(place / f"{image}.png")
    return folder


def test_color_photos_get_the_default_backbone_if_it_is_installed(
    small: str, scan, tmp_path: Path, monkeypatch
) -> None:
    folder = scan(photos(tmp_path / "pets"))
    assert choose_backbone(folder, Choices(shot=1), ()) == Choices(backbone=small, shot=1)
    assert choose_backbone(folder, Choices("maml"), ["outer.num_tasks=2"]).backbone == small
    # The user's choices come first.
    for chosen, overrides in (
        (Choices(backbone="conv4"), ()),
        (Choices(), ["model.name=resnet12"]),
        (Choices(), ["model.filters=4"]),
        (Choices(), ["tasks.backbone=none"]),
    ):
        assert choose_backbone(folder, chosen, overrides) == chosen
    gray = scan(photos(tmp_path / "scans", gray=True))
    assert choose_backbone(gray, Choices(), ()) == Choices()
    monkeypatch.setattr("alfa.build._image_folder.DEFAULT_BACKBONE", "not-installed")
    assert choose_backbone(folder, Choices(), ()) == Choices()


def test_features_of_prepared_photos_are_those_of_the_photos(
    small: str, scan, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("ALFA_DATA", str(tmp_path / "data"))
    path = photos(tmp_path / "pets")
    plain = scan(path)
    folder = plain.for_backbone(small)
    assert (folder.source.size, folder.source.crop_filter) == (28, "bilinear")
    assert plain.source.crop_filter is None
    assert folder.dataset == f"{plain.dataset}-bilinear"
    store = prepare(folder.source, path, root=data_folder(), name=folder.dataset)
    images = store.image_set()
    features = FeatureSet(images, small)
    form = ImageFormat.of(Signature((8,), 5, "cross_entropy", backbone=small))
    for number, name in enumerate(store.items()):
        content = (path / name).read_bytes()
        square, _ = decode(content, size=28, num_channels=3, crop=Crop(28, "bilinear"))
        assert np.array_equal(images.images[number], square)
        expected = form.inputs(form.decode(content)[0][None])[0]
        # The crop of a stored square is the crop of the photo, except for rounding.
        assert np.allclose(features.take(np.array(number)), expected, atol=1e-3)
    # The other format has its own store.
    other = prepare(plain.source, path, root=data_folder(), name=plain.dataset)
    assert other.path != store.path
    assert not np.array_equal(other.images[0, :, :28, :28], images.images[0])


@pytest.mark.parametrize(
    ("train", "told"),
    [
        (19, "are good immediately; 19 training classes are few, .* gains more with 20 or more"),
        (20, "are good immediately, and meta-training on 20 related classes for a few minutes"),
    ],
)
def test_training_advice_for_pretrained_backbones(train: int, told: str) -> None:
    assert re.search(told, training_advice(counts(train, 5), is_pretrained=True))


def test_an_experiment_on_features_follows_from_the_counts(small: str) -> None:
    experiment = experiment_for("pets-1", counts(30), size=28, choices=Choices(backbone=small))
    assert experiment.model.name == "features"
    assert experiment.tasks.options["backbone"] == small
    assert experiment.tasks.options["way"] == 2
    assert experiment.outer.validate_start
