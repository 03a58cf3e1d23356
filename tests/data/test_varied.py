"""Tasks of any size from one or more sources."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

from alfa.build._build import build_tasks
from alfa.config import parse_experiment
from alfa.data import (
    Composition,
    FewShot,
    ImageSet,
    Limits,
    MetaDataset,
    Varied,
    by_prefix,
    grouped,
    open_images,
    open_store,
    prepare,
)
from alfa.data import _varied as module
from alfa.data.sources import SOURCES, class_names
from alfa.errors import ConfigError, DataError
from alfa.types import Episode


def make_images(name: str, counts: dict[str, list[int]], *, side: int = 4, channels: int = 1):
    """Create images whose pixels encode their numbers."""
    arrays, number = {}, 0
    for split, of_classes in counts.items():
        classes = {}
        for label, count in enumerate(of_classes):
            pixels = np.zeros((count, channels, side, side), np.uint8)
            for place in range(count):
                # Two pixels hold the number of the image.
                pixels[place, 0, 0, :2] = divmod(number, 256)
                number += 1
            classes[f"{split}{label}"] = pixels
        arrays[split] = classes
    return ImageSet.of_arrays(name, arrays)


def numbers_of(x: torch.Tensor) -> list[int]:
    """Return the numbers of the images from the inputs."""
    pixels = ((x + 1) * 127.5).round().long()
    return (pixels[..., 0, 0, 0] * 256 + pixels[..., 0, 0, 1]).flatten().tolist()


COUNTS = {"train": [9, 30, 12, 7, 25, 40, 8], "val": [10] * 6, "test": [2, 3, 4, 5, 6, 7]}


@pytest.fixture(scope="module")
def images() -> ImageSet:
    return make_images("some", COUNTS)


@pytest.fixture(scope="module")
def tasks(images) -> Varied:
    return Varied([images])


@pytest.mark.parametrize("split", COUNTS)
def test_a_task_is_what_the_sampler_drew(tasks, images, split) -> None:
    for index in range(20):
        source, drawn = tasks.draw(index, split=split, seed=3)
        episode = tasks.episode(index, num_tasks=1, split=split, seed=3)
        assert source is images
        assert isinstance(drawn, Composition)
        assert episode.support_y[0].bincount().tolist() == drawn.num_support.tolist()
        assert episode.query_y[0].bincount().tolist() == [drawn.num_query] * len(drawn.classes)
        support, query = numbers_of(episode.support_x), numbers_of(episode.query_x)
        assert len(set(support + query)) == len(support) + len(query)
        classes = images.splits[split]
        for numbers, labels in ((support, episode.support_y), (query, episode.query_y)):
            for number, label in zip(numbers, labels[0].tolist(), strict=True):
                own = drawn.classes[label]
                first, count = classes.first[own], classes.count[own]
                assert first <= number < first + count


def test_a_task_is_a_function_of_seed_split_and_index(tasks) -> None:
    def key(index: int, split: str, seed: int) -> list[int]:
        return numbers_of(tasks.episode(index, num_tasks=1, split=split, seed=seed).support_x)

    assert key(4, "train", 0) == key(4, "train", 0)
    several = {tuple(key(i, s, d)) for i in (4, 5) for s in ("train", "val") for d in (0, 1)}
    assert len(several) == 8


# Sources


def test_sources_are_drawn_uniformly_or_by_weight() -> None:
    sources = [make_images(f"source {n}", {"train": [6] * 5}) for n in range(3)]
    for weights, expected in ((None, [1 / 3] * 3), ([1, 2, 5], [1 / 8, 2 / 8, 5 / 8])):
        tasks = Varied(sources, weights=weights)
        names = [tasks.draw(index)[0].name for index in range(2_000)]
        shares = [names.count(source.name) / 2_000 for source in sources]
        assert shares == pytest.approx(expected, abs=0.035)


def test_a_task_has_classes_of_one_source_only() -> None:
    sources = [make_images("one", {"train": [6] * 9}), make_images("two", {"train": [6] * 9})]
    tasks = Varied(sources)
    assert {tasks.draw(index)[0].name for index in range(20)} == {"one", "two"}


def test_the_classes_of_all_sources_are_numbered_consecutively() -> None:
    counts = {"train": [10] * 6}
    first = make_images("first", counts)
    tasks = Varied([first, make_images("second", counts)])
    seen = set()
    for group in tasks.groups(0, num_tasks=30):
        for task, index in enumerate(group.indices):
            source, drawn = tasks.draw(index)
            wanted = drawn.classes + (0 if source is first else 6)
            assert group.episode.classes[task].tolist() == wanted.tolist()
            seen |= set(wanted.tolist())
    assert seen == set(range(12))


def test_groups_of_tasks_without_classes_have_none() -> None:
    x, y = torch.zeros(1, 2, 1), torch.zeros(1, 2, dtype=torch.long)
    known = Episode(x, y, x, y, classes=torch.zeros(1, 1))
    (group,) = grouped([0, 1], [known, Episode(x, y, x, y)])
    assert group.episode.classes is None


def test_related_classes_are_those_of_the_source(images) -> None:
    names = [f"{'ab'[n % 2]}/{n}" for n in range(12)]
    alphabets = ImageSet.of_arrays(
        "letters", {"train": {name: np.zeros((4, 1, 4, 4), np.uint8) for name in names}}
    )
    related = {("letters", "train"): by_prefix(names)}
    tasks = Varied([alphabets], related=related)
    for index in range(30):
        _, drawn = tasks.draw(index)
        assert len({names[c][0] for c in drawn.classes}) == 1


def test_images_are_normalised_to_minus_one_and_one(tasks) -> None:
    episode = tasks.episode(0, num_tasks=1)
    assert episode.support_x.dtype == torch.float32
    assert float(episode.support_x.min()) == -1
    signature = tasks.signature()
    assert signature.varies
    assert signature.mean == (0.5,)
    assert signature.num_outputs == 50


# Stacks


def test_tasks_of_one_size_are_stacked_and_the_others_are_not(images) -> None:
    tasks = Varied([images], limits=Limits(max_query=1, max_support=7, max_way=7))
    groups = tasks.groups(10, num_tasks=30, seed=2)
    assert sorted(i for group in groups for i in group.indices) == list(range(10, 40))
    assert any(len(group.indices) > 1 for group in groups)
    sizes = set()
    for group in groups:
        assert len(group.indices) == group.episode.num_tasks
        way = int(group.episode.support_y.max()) + 1
        sizes.add((way, group.episode.support_x.shape[1], group.episode.query_x.shape[1]))
        for place, index in enumerate(group.indices):
            alone = tasks.episode(index, num_tasks=1, seed=2)
            assert torch.equal(group.episode[place : place + 1].support_x, alone.support_x)
            assert torch.equal(group.episode[place : place + 1].query_y, alone.query_y)
    assert len(sizes) == len(groups)


def test_tasks_of_another_number_of_classes_are_not_stacked() -> None:
    def task(way: int) -> Episode:
        y = torch.arange(6).remainder(way)[None]
        return Episode(torch.zeros(1, 6, 1), y, torch.zeros(1, 6, 1), y)

    groups = grouped([4, 5, 6], [task(2), task(3), task(2)])
    assert [group.indices for group in groups] == [(4, 6), (5,)]


def test_unequal_tasks_are_no_stack(tasks) -> None:
    with pytest.raises(ConfigError, match="different sizes and cannot be one stack"):
        tasks.episode(0, num_tasks=5)


def test_the_largest_tasks_are_as_large_as_any(tasks) -> None:
    largest = tasks.largest(2)
    assert largest.num_tasks == 2
    for split in COUNTS:
        for index in range(50):
            episode = tasks.episode(index, num_tasks=1, split=split)
            assert episode.query_x.shape[1] <= largest.query_x.shape[1]
            assert episode.support_y.max() <= largest.support_y.max()
    # Every class has an example, or there would be no prototype of it.
    assert largest.support_y[0].unique().tolist() == list(range(7))


@pytest.mark.parametrize(
    ("num_classes", "count", "expected"),
    # 43 classes of traffic signs: 11 of each are 473, and some have one more.
    [(43, 150, 500), (50, 150, 500), (60, 150, 500), (5, 150, 500), (4, 150, 400), (7, 9, 63)],
)
def test_the_largest_support_set_has_all_that_there_may_be(num_classes, count, expected) -> None:
    limits = Limits(min_way=4, min_log_weight=0, max_log_weight=0)
    tasks = Varied([make_images("signs", {"test": [count] * num_classes})], limits=limits)
    largest = tasks.largest(1)
    per_class = largest.support_y[0].bincount()
    assert largest.support_x.shape[1] == int(per_class.sum()) == expected
    assert len(per_class) == min(50, num_classes)
    assert int(per_class.max() - per_class.min()) <= 1
    drawn = [int(tasks.draw(i, split="test")[1].num_support.sum()) for i in range(200)]
    assert max(drawn) <= expected


def test_classes_that_are_related_or_not_are_other_tasks(images) -> None:
    names = images.splits["test"].names
    plain = dataclasses.replace(images, name="letters")
    tasks = Varied([plain], related={("letters", "test"): by_prefix(names)})
    assert tasks.names_digest("test") != Varied([plain]).names_digest("test")
    # A store without `source` is identified by its name.
    known = Varied([made_from("letters", plain)], related=tasks.related)
    assert known.names_digest("test") == tasks.names_digest("test")


# Faults


def test_what_is_only_for_testing_is_refused_for_training() -> None:
    signs = made_from("md-traffic-sign", make_images("signs", {"test": [9] * 6}))
    tasks = Varied([make_images("other", COUNTS), signs])
    tasks.check("test")
    with pytest.raises(DataError, match="signs is for testing only: it has no train classes") as e:
        tasks.check("train", "val")
    # More images would not help.
    assert str(e.value).endswith("it has no val classes; remove these sources.")
    with pytest.raises(DataError, match="signs is for testing only"):
        tasks.episode(0, num_tasks=1)


def made_from(source: str, images: ImageSet) -> ImageSet:
    return dataclasses.replace(images, source=source)


@pytest.mark.parametrize("name", ["md-traffic-sign", "md-mscoco", "traffic-sign", "vgg-flower"])
def test_datasets_without_published_training_classes_are_for_testing_only(name) -> None:
    images = make_images(name, {"test": [9] * 6})
    with pytest.raises(DataError, match=f"{name} is for testing only: it has no train classes"):
        Varied([images]).check("train")


def test_training_classes_that_were_not_there_are_said_to_be_missing() -> None:
    """A source with only its test classes prepared still has published training classes."""
    flowers = make_images("md-flower", {"test": [9] * 6})
    with pytest.raises(DataError) as caught:
        Varied([flowers]).check("train")
    assert str(caught.value) == (
        "these tasks cannot be drawn: md-flower has no train classes: none of the 71 published "
        "ones was prepared; remove these sources, or prepare md-flower again with more images."
    )
    with pytest.raises(DataError, match="md-mscoco has no val classes: none of the 40"):
        Varied([make_images("md-mscoco", {"test": [9] * 6})]).check("val")
    # A dataset without a published split.
    with pytest.raises(DataError, match="drawn: pets has no train classes; remove"):
        Varied([make_images("pets", {"test": [9] * 6})]).check("train")
    # It has the name of a source but was prepared from a folder.
    own = made_from("folder", make_images("md-flower", {"test": [9] * 6}))
    with pytest.raises(DataError, match="drawn: md-flower has no train classes; remove"):
        Varied([own]).check("train")


def test_only_what_has_training_classes_is_to_be_prepared_anew() -> None:
    signs = make_images("md-traffic-sign", {"test": [9] * 6})
    few = make_images("few", {"train": [9] * 4, "val": [9] * 4})
    with pytest.raises(DataError) as caught:
        Varied([signs, few]).check("train", "val")
    assert str(caught.value).endswith(
        "remove these sources, or prepare few again with more images."
    )


def test_every_fault_is_named_at_once() -> None:
    few = make_images("few", {"train": [9] * 4, "val": [9] * 5})
    single = make_images("single", {"train": [9, 1, 9, 1, 9, 9], "val": [9] * 5})
    with pytest.raises(DataError) as caught:
        Varied([few, single]).check("train", "val", "test")
    told = str(caught.value)
    assert "few has too few train classes: `min_way` is 5, but there are 4 classes" in told
    assert "few has no test classes" in told
    assert "single has train classes with fewer than 2 images" in told
    assert "train1, train3" in told
    assert "few has no val" not in told


def test_sources_must_fit_together(images) -> None:
    with pytest.raises(ConfigError, match="at least one set of images"):
        Varied([])
    with pytest.raises(ConfigError, match=r"`weights` must be .* each of 2 sources, got \[1\.0\]"):
        Varied([images, images], weights=[1])
    for wrong in ([1, 0], [1, -1], [math.nan, 1], [1, math.nan], [math.inf, 1], [1e308, 1e308]):
        with pytest.raises(ConfigError, match="must be a finite number above 0 for each of 2"):
            Varied([images, images], weights=wrong)
    with pytest.raises(ConfigError, match=r"`weights` .* got \[nan\]"):
        Varied([images], weights=[math.nan])
    with pytest.raises(ConfigError, match=r"convert them with `ImageSet\.like`"):
        Varied([images, make_images("large", COUNTS, side=5)])
    darker = dataclasses.replace(images, std=(0.1,))
    with pytest.raises(ConfigError, match=r"mean \[0\.5\] and std \[0\.1\]"):
        Varied([images, darker])


# As a model that was trained on others sees them


def test_tasks_are_brought_to_what_a_model_knows(tasks) -> None:
    own = Varied([make_images("own", COUNTS, side=6, channels=3)]).signature()
    seen = tasks.like(own)
    assert tuple(seen.input_shape) == (3, 6, 6)
    assert seen.draw(3)[1].classes.tolist() == tasks.draw(3)[1].classes.tolist()


# By name


@pytest.fixture
def stores(monkeypatch):
    known = {
        "md-omniglot": ImageSet.of_arrays(
            "md-omniglot",
            {
                split: {
                    f"{alphabet}/{n}": np.zeros((20, 1, 8, 8), np.uint8)
                    for alphabet in ("A", "B")
                    for n in range(6)
                }
                for split in ("train", "val", "test")
            },
        ),
        "md-flower": make_images("md-flower", {s: [20] * 6 for s in COUNTS}, side=9, channels=3),
    }
    monkeypatch.setattr(module, "open_images", lambda name, size=None: known[name])
    monkeypatch.setattr(module, "prepared", lambda: {"md-flower": [9, 12]})
    return known


def test_datasets_are_opened_by_name_and_brought_to_one_shape(stores) -> None:
    tasks = MetaDataset(dataset=["md-omniglot", "md-flower"], size=12, max_way=6)
    assert tuple(tasks.input_shape) == (3, 12, 12)
    assert tasks.num_outputs == 6
    for index in range(10):
        source, drawn = tasks.draw(index)
        assert tasks.episode(index, num_tasks=1).support_x.shape[2:] == (3, 12, 12)
        if source.name == "md-omniglot":
            names = [source.splits["train"].names[c] for c in drawn.classes]
            assert len({name[0] for name in names}) == 1
    with pytest.raises(ConfigError, match="must contain each name only once"):
        MetaDataset(dataset=["md-flower", "md-flower"])


def test_of_several_prepared_sizes_that_of_the_model_is_opened(stores, monkeypatch) -> None:
    opened = []

    def open_images(name, size=None):
        opened.append((name, size))
        return stores[name]

    monkeypatch.setattr(module, "open_images", open_images)
    MetaDataset(dataset=["md-omniglot", "md-flower"], size=12)
    MetaDataset(dataset=["md-flower"], size=20)
    MetaDataset(dataset=["md-flower"], size=12, stored_size=9)
    assert opened == [
        ("md-omniglot", None),
        ("md-flower", 12),
        ("md-flower", None),
        ("md-flower", 9),
    ]


@pytest.fixture
def alphabets(tmp_path):
    """Folders of characters of two of Omniglot's alphabets."""
    names = class_names("md-omniglot", "train")
    for alphabet in ("Greek", "Latin"):
        for name in [name for name in names if name.startswith(f"{alphabet}/")][:6]:
            (tmp_path / "raw" / name).mkdir(parents=True)
            for number in range(4):
                picture = Image.fromarray(np.full((8, 8), 9 * number, np.uint8))
                picture.save(tmp_path / "raw" / name / f"{number}.png")
    return tmp_path / "raw"


def drawn_alphabets(tasks: Varied) -> set[str]:
    """Return the alphabets of each task."""
    found = set()
    for index in range(20):
        source, drawn = tasks.draw(index)
        names = [source.splits["train"].names[c].partition("/")[0] for c in drawn.classes]
        found.add("+".join(sorted(set(names))))
    return found


def test_a_source_under_another_name_keeps_its_alphabets(alphabets, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ALFA_DATA", str(tmp_path))
    options = {"root": tmp_path, "size": 8, "on_problem": "skip", "workers": 1}
    for name in ("md-omniglot", "letters"):
        prepare(SOURCES.get("md-omniglot")(), alphabets, name=name, **options)
    own, renamed = (MetaDataset(dataset=[n], size=8) for n in ("md-omniglot", "letters"))
    assert drawn_alphabets(own) == drawn_alphabets(renamed) == {"Greek", "Latin"}
    # Only a different name is stored.
    indices = [open_store(name).index for name in ("md-omniglot", "letters")]
    assert [index.source for index in indices] == ["", "md-omniglot"]
    assert indices[0].digest() == indices[1].digest() == own.signature().data
    assert renamed.signature().data == f"{own.signature().data}+md-omniglot"
    # Tasks of one size do not use related classes.
    assert FewShot(open_images("letters"), way=2, shot=1, num_query=1).signature().data == (
        indices[1].digest()
    )


def test_a_store_of_another_name_that_was_made_before_is_opened_by_that(
    alphabets, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("ALFA_DATA", str(tmp_path))
    options = {"root": tmp_path, "size": 8, "on_problem": "skip", "workers": 1}
    store = prepare(SOURCES.get("md-omniglot")(), alphabets, name="letters", **options)
    content = json.loads((store.path / "index.json").read_text())
    assert content.pop("source") == "md-omniglot"
    (store.path / "index.json").write_text(json.dumps(content))
    tasks = MetaDataset(dataset=["letters"], size=8)
    assert "Greek+Latin" in drawn_alphabets(tasks)
    assert tasks.signature().data == store.index.digest()


def test_weights_in_a_configuration_are_used(stores) -> None:
    content = {
        "tasks": {
            "name": "meta-dataset",
            "dataset": ["md-omniglot", "md-flower"],
            "weights": [9.0, 1.0],
            "max_way": 6,
        },
        "model": {"name": "conv4"},
    }
    tasks = build_tasks(parse_experiment(content))
    assert tasks.weights == [9, 1]
    names = [tasks.draw(index)[0].name for index in range(300)]
    assert names.count("md-omniglot") > 240


def test_grey_images_of_the_right_size_are_repeated_as_they_are() -> None:
    grey = make_images("grey", COUNTS)
    seen = grey.like((3, 4, 4), (0.5,) * 3, (0.5,) * 3)
    numbers = np.array([[0, 5], [7, 9]])
    taken = seen.take(numbers)
    assert taken.shape == (2, 2, 3, 4, 4)
    for channel in range(3):
        assert np.array_equal(taken[..., channel, :, :], grey.images[numbers][..., 0, :, :])
