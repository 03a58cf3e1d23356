"""Episodes of images: content, determinism, and errors."""

from __future__ import annotations

import doctest
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alfa.config import parse_experiment, to_dict
from alfa.data import SPLITS, TASKS, FewShot, Images, ImageSet, Strokes, _image_set
from alfa.errors import ConfigError, DataError
from alfa.types import Episode

PARTS = ("support_x", "support_y", "query_x", "query_y")


def numbered(counts: Mapping[str, list[int]], shape: tuple[int, ...] = (1, 2, 2)) -> ImageSet:
    """Create images whose first two pixels are the class number and the number within the class.

    Normalisation leaves the pixels as they are.
    """
    arrays: dict[str, dict[str, np.ndarray]] = {}
    number = 0
    for split, sizes in counts.items():
        arrays[split] = {}
        for count in sizes:
            images = np.zeros((count, *shape), np.uint8)
            images[:, 0, 0, 0] = number
            images[:, 0, 0, 1] = np.arange(count)
            arrays[split][f"class-{number}"] = images
            number += 1
    num_channels = shape[0]
    return ImageSet.of_arrays(
        "numbers", arrays, mean=(0.0,) * num_channels, std=(1 / 255,) * num_channels
    )


@pytest.fixture
def images() -> ImageSet:
    return numbered({"train": [25] * 10, "val": [20] * 6, "test": [22, 30, 25, 40, 20, 21, 28]})


@pytest.fixture
def tasks(images) -> FewShot:
    return FewShot(images, way=5, shot=3, num_query=7)


@pytest.fixture(scope="module")
def colourful() -> ImageSet:
    """Random color images."""
    rng = np.random.default_rng(2)
    arrays = {
        split: {
            f"{split}-{number}": rng.integers(0, 256, (12, 3, 20, 20)).astype(np.uint8)
            for number in range(6)
        }
        for split in SPLITS
    }
    return ImageSet.of_arrays("noise", arrays, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))


def same(one: Episode, other: Episode) -> bool:
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in PARTS)


def decoded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The classes, and the numbers within their class, of numbered images ``[..., 1, 2, 2]``."""
    return x[..., 0, 0, 0].long(), x[..., 0, 0, 1].long()


def check_task(support_x, support_y, query_x, query_y, *, way: int, classes: set[int]) -> None:
    """Check the properties of a task."""
    label_of: dict[int, int] = {}
    seen: dict[str, set[tuple[int, int]]] = {}
    for name, x, y in (("support", support_x, support_y), ("query", query_x, query_y)):
        owners, places = decoded(x)
        for owner, label in zip(owners.tolist(), y.tolist(), strict=True):
            assert label_of.setdefault(owner, label) == label
        seen[name] = set(zip(owners.tolist(), places.tolist(), strict=True))
        assert len(seen[name]) == len(x)
        assert y.bincount(minlength=way).tolist() == [len(x) // way] * way
    assert sorted(label_of.values()) == list(range(way))
    assert set(label_of) <= classes
    assert not seen["support"] & seen["query"]


class TestContent:
    def test_sizes_and_types(self, tasks):
        episode = tasks.episode(0, num_tasks=4)
        assert episode.support_x.shape == (4, 15, 1, 2, 2)
        assert episode.query_x.shape == (4, 35, 1, 2, 2)
        assert episode.support_y.shape == (4, 15)
        assert episode.query_y.shape == (4, 35)
        assert episode.support_x.dtype == episode.query_x.dtype == torch.float32
        assert episode.support_y.dtype == episode.query_y.dtype == torch.int64
        assert all(getattr(episode, name).is_contiguous() for name in PARTS)

    def test_what_a_model_must_take_and_give(self, tasks):
        assert tuple(tasks.input_shape) == (1, 2, 2)
        assert tasks.num_outputs == 5
        assert tasks.loss == "cross_entropy"

    @pytest.mark.parametrize("split", SPLITS)
    def test_classes_and_images_are_different_ones_of_the_split(self, tasks, split):
        begin = {"train": 0, "val": 10, "test": 16}[split]
        classes = set(range(begin, begin + {"train": 10, "val": 6, "test": 7}[split]))
        episode = tasks.episode(0, num_tasks=50, split=split)
        for task in range(50):
            parts = (getattr(episode, name)[task] for name in PARTS)
            check_task(*parts, way=5, classes=classes)

    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def test_any_way_shot_and_number_of_queries(self, data):
        way, shot, num_query = (data.draw(st.integers(1, most)) for most in (6, 5, 5))
        sizes = st.integers(shot + num_query, shot + num_query + 4)
        counts = data.draw(st.lists(sizes, min_size=way, max_size=way + 4))
        tasks = FewShot(numbered({"val": counts}), way=way, shot=shot, num_query=num_query)
        where = {"split": "val", "seed": data.draw(st.integers(0, 2**63 - 1))}
        first = data.draw(st.integers(0, 2**40))
        episode = tasks.episode(first, num_tasks=2, **where)
        assert episode.support_x.shape == (2, way * shot, 1, 2, 2)
        assert episode.query_x.shape == (2, way * num_query, 1, 2, 2)
        for task in range(2):
            parts = (getattr(episode, name)[task] for name in PARTS)
            check_task(*parts, way=way, classes=set(range(len(counts))))
        assert same(episode[1:], tasks.episode(first + 1, num_tasks=1, **where))

    def test_what_is_drawn_is_what_an_episode_holds(self, tasks, images):
        classes, numbers = tasks.draw(4, num_tasks=3, split="test", seed=1)
        episode = tasks.episode(4, num_tasks=3, split="test", seed=1)
        assert classes.shape == (3, 5)
        assert numbers.shape == (3, 5, 10)
        owners, _ = decoded(episode.support_x)
        assert np.array_equal(16 + classes.repeat(3, axis=1), owners)
        support = images.images[numbers[:, :, :3]].reshape(3, 15, 1, 2, 2)
        query = images.images[numbers[:, :, 3:]].reshape(3, 35, 1, 2, 2)
        assert np.array_equal(support, episode.support_x)
        assert np.array_equal(query, episode.query_x)

    def test_inputs_are_normalised_channel_by_channel(self, colourful):
        tasks = FewShot(colourful, way=3, shot=2, num_query=4)
        _, numbers = tasks.draw(0, num_tasks=2)
        pixels = colourful.images[numbers[:, :, :2]].reshape(2, 6, 3, 20, 20)
        mean, std = (np.reshape(v, (3, 1, 1)) for v in (colourful.mean, colourful.std))
        wanted = torch.from_numpy((pixels / 255 - mean) / std)
        support_x = tasks.episode(0, num_tasks=2).support_x
        torch.testing.assert_close(support_x.double(), wanted, rtol=0, atol=1e-6)


class TestPurity:
    @pytest.mark.parametrize("augment", [False, True])
    @pytest.mark.parametrize("split", SPLITS)
    def test_a_stack_is_its_tasks_drawn_alone(self, colourful, split, augment):
        tasks = FewShot(colourful, way=4, shot=2, num_query=3, augment=augment)
        stack = tasks.episode(7, num_tasks=4, split=split, seed=2)
        for task in range(4):
            alone = tasks.episode(7 + task, num_tasks=1, split=split, seed=2)
            assert same(stack[task : task + 1], alone)

    def test_a_task_depends_on_seed_split_and_number_only(self, tasks, images):
        first = tasks.episode(5, num_tasks=1, split="val", seed=3)
        tasks.episode(0, num_tasks=9, split="val", seed=3)
        np.random.default_rng().random()
        again = FewShot(images, way=5, shot=3, num_query=7)
        assert same(first, again.episode(5, num_tasks=1, split="val", seed=3))

    @pytest.mark.parametrize("change", [{"first": 6}, {"seed": 4}, {"split": "val"}])
    def test_another_seed_split_or_number_is_another_task(self, tasks, change):
        where = {"first": 5, "split": "train", "seed": 3}
        (one, _), (other, _) = (
            tasks.draw(options.pop("first"), num_tasks=8, **options)
            for options in (dict(where), {**where, **change})
        )
        assert not np.array_equal(one, other)

    def test_tasks_repeat_no_more_than_chance_has_them(self, tasks):
        _, numbers = tasks.draw(0, num_tasks=500)
        assert len({task.tobytes() for task in numbers}) == 500

    def test_mapped_images_and_images_in_memory_give_the_same_tasks(self, tmp_path, colourful):
        mapped = _mapped(colourful, tmp_path)
        one, other = (FewShot(images, way=4, shot=2, num_query=3) for images in (colourful, mapped))
        for split in SPLITS:
            assert same(
                one.episode(3, num_tasks=3, split=split), other.episode(3, num_tasks=3, split=split)
            )


def _mapped(images: ImageSet, folder: Path) -> ImageSet:
    np.save(folder / "images.npy", images.images)
    mapped = np.load(folder / "images.npy", mmap_mode="r")
    return ImageSet(images.name, mapped, images.splits, images.mean, images.std)


class TestTooSmall:
    def test_too_few_classes_and_every_small_class_are_named(self):
        images = numbered({"train": [9, 10, 3, 0], "test": [2, 9]})
        with pytest.raises(DataError) as caught:
            FewShot(images, way=5, shot=3, num_query=7)
        assert str(caught.value) == (
            "numbers is too small for these tasks: train has 4 classes, but `way` is 5; train has "
            "classes with fewer than 10 images (`shot` + `num_query`): class-0 (9), class-2 (3), "
            "class-3 (0); test has 2 classes, but `way` is 5; test has classes with fewer than 10 "
            "images (`shot` + `num_query`): class-4 (2), class-5 (9); use lower numbers, or add "
            "images."
        )

    def test_all_of_many_small_classes_are_named(self):
        with pytest.raises(DataError) as caught:
            FewShot(numbered({"val": [3] * 40}), way=5, shot=1, num_query=15)
        assert all(f"class-{number} (3)" in str(caught.value) for number in range(40))

    def test_images_for_testing_only_can_test(self):
        tasks = FewShot(numbered({"test": [10] * 5}), way=5, shot=3, num_query=7)
        assert tasks.episode(0, num_tasks=1, split="test").num_tasks == 1
        for split in ("train", "val"):
            with pytest.raises(DataError) as caught:
                tasks.episode(0, num_tasks=1, split=split)
            assert str(caught.value) == (
                f"numbers is too small for these tasks: it has no {split} classes; use lower "
                "numbers, or add images."
            )

    def test_a_split_that_is_too_small_spoils_no_other(self):
        images = numbered({"train": [10, 4, 10, 10, 10], "val": [10] * 4, "test": [10] * 5})
        tasks = FewShot(images, way=5, shot=3, num_query=7)
        assert tasks.episode(0, num_tasks=1, split="test").num_tasks == 1
        with pytest.raises(DataError, match=r"train has classes with fewer .*: class-1 \(4\); use"):
            tasks.episode(0, num_tasks=1, split="train")
        with pytest.raises(DataError, match="val has 4 classes, but `way` is 5; use lower"):
            tasks.draw(0, num_tasks=1, split="val")

    def test_several_splits_are_checked_at_once(self):
        images = numbered({"train": [4] * 5, "test": [10] * 5})
        tasks = FewShot(images, way=5, shot=3, num_query=7)
        tasks.check("test")
        with pytest.raises(DataError) as caught:
            tasks.check("train", "val", "test")
        assert "train has classes with fewer than 10" in str(caught.value)
        assert "it has no val classes" in str(caught.value)

    def test_images_without_classes_are_refused(self):
        empty = ImageSet("nothing", np.zeros((0, 1, 8, 8), np.uint8), {}, (0.5,), (0.5,))
        with pytest.raises(
            DataError, match="nothing is too small for these tasks: it has no train"
        ):
            FewShot(empty)

    def test_a_class_that_is_just_large_enough_is_used_whole(self):
        tasks = FewShot(numbered({"train": [10] * 3}), way=3, shot=3, num_query=7)
        _, numbers = tasks.draw(0, num_tasks=5)
        assert all(sorted(task.ravel()) == list(range(30)) for task in numbers)

    @pytest.mark.parametrize("key", ["way", "shot", "num_query"])
    def test_there_must_be_one_of_each(self, images, key):
        with pytest.raises(ConfigError, match=f"`{key}` must be at least 1, got 0"):
            FewShot(images, **{key: 0})


class TestAnotherModel:
    """Tasks for a model that was trained on images of another kind."""

    def test_images_are_brought_to_its_shape_and_normalised_by_its_values(self, colourful):
        mean, std = (0.3,), (0.15,)
        seen = colourful.like((1, 28, 28), mean, std)
        tasks = FewShot(seen, way=3, shot=2, num_query=4)
        assert tasks.input_shape == (1, 28, 28)
        episode = tasks.episode(0, num_tasks=2, split="test")
        assert episode.query_x.shape == (2, 12, 1, 28, 28)
        _, numbers = tasks.draw(0, num_tasks=2, split="test")
        pixels = seen.take(numbers[:, :, :2]).reshape(2, 6, 1, 28, 28)
        wanted = torch.from_numpy((pixels / 255 - 0.3) / 0.15)
        torch.testing.assert_close(episode.support_x.double(), wanted, rtol=0, atol=1e-6)

    def test_the_same_images_are_drawn(self, colourful):
        seen = colourful.like((1, 28, 28), (0.5,), (0.5,))
        one, other = (FewShot(images, way=3, shot=2, num_query=4) for images in (colourful, seen))
        for drawn, again in zip(one.draw(0, num_tasks=5), other.draw(0, num_tasks=5), strict=True):
            assert np.array_equal(drawn, again)

    def test_only_images_that_are_drawn_are_converted(self, colourful, monkeypatch):
        calls = []
        real = _image_set.decode
        monkeypatch.setattr(
            _image_set, "decode", lambda *a, **options: calls.append(a) or real(*a, **options)
        )
        tasks = FewShot(
            colourful.like((3, 84, 84), (0.5,) * 3, (0.5,) * 3), way=2, shot=1, num_query=2
        )
        assert not calls
        tasks.episode(0, num_tasks=2, split="test")
        assert len(calls) == 2 * 2 * 3


class TestByName:
    @pytest.fixture(autouse=True)
    def no_prepared_data(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setenv("ALFA_DATA", str(tmp_path))

    def test_tasks_of_images_are_known_by_name(self):
        assert TASKS.get("images") is Images

    def test_strokes_need_no_data(self):
        tasks = TASKS.get("images")(way=4, shot=2, num_query=3, size=20)
        episode = tasks.episode(0, num_tasks=2, split="val")
        assert episode.support_x.shape == (2, 8, 1, 20, 20)
        same_images = FewShot(Strokes(size=20).images(), way=4, shot=2, num_query=3)
        assert same(episode, same_images.episode(0, num_tasks=2, split="val"))

    def test_an_experiment_says_which(self):
        content = {"tasks": {"name": "images", "way": 3}, "model": {"name": "conv4"}}
        options = parse_experiment(content).tasks.options
        assert options["dataset"] == "strokes"
        assert (options["way"], options["shot"], options["num_query"]) == (3, 5, 15)
        assert options["augment"] is False

    def test_an_experiment_s_faults_are_named(self):
        content = {"tasks": {"name": "images", "way": 0}, "model": {"name": "conv4"}}
        with pytest.raises(ConfigError, match=r"tasks\.way is 0, but must be greater than"):
            parse_experiment(content)


def test_the_example_runs():
    finder = doctest.DocTestFinder()
    results = [doctest.DocTestRunner().run(test) for test in finder.find(FewShot)]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0


TRAINING = {"train_way": 8, "train_shot": 1, "train_num_query": 4}


class TestTraining:
    """Training tasks of another size."""

    def test_training_tasks_have_their_own_sizes(self, images):
        tasks = FewShot(images, way=5, shot=3, num_query=7, **TRAINING)
        episode = tasks.episode(0, num_tasks=2)
        assert (episode.support_y.shape, episode.query_y.shape) == ((2, 8), (2, 32))
        assert tasks.num_outputs == 5
        for task in range(2):
            parts = (getattr(episode, name)[task] for name in PARTS)
            check_task(*parts, way=8, classes=set(range(10)))

    @pytest.mark.parametrize("split", ["val", "test"])
    def test_other_tasks_are_unchanged(self, tasks, images, split):
        other = FewShot(images, way=5, shot=3, num_query=7, **TRAINING)
        where = {"num_tasks": 3, "split": split, "seed": 4}
        assert same(tasks.episode(2, **where), other.episode(2, **where))

    def test_without_options_training_tasks_are_unchanged(self, tasks, images):
        given = FewShot(
            images, way=5, shot=3, num_query=7, train_way=5, train_shot=3, train_num_query=7
        )
        assert same(tasks.episode(2, num_tasks=3), given.episode(2, num_tasks=3))

    def test_a_model_of_other_images_gets_tasks_of_the_same_sizes(self, colourful):
        tasks = FewShot(colourful, way=3, shot=2, num_query=4, train_way=5, train_num_query=1)
        like = tasks.like(tasks.signature())
        assert same(tasks.episode(0, num_tasks=2), like.episode(0, num_tasks=2))

    def test_a_split_that_is_too_small_is_named(self, images):
        tasks = FewShot(images, way=5, shot=3, num_query=7, train_way=11, train_shot=20)
        tasks.check("val", "test")
        with pytest.raises(DataError, match=r"train has 10 classes, but `train_way` is 11; train"):
            tasks.check("train")

    @pytest.mark.parametrize("key", ["train_way", "train_shot", "train_num_query"])
    def test_there_must_be_one_of_each(self, images, key):
        with pytest.raises(ConfigError, match=f"`{key}` must be at least 1, got 0"):
            FewShot(images, **{key: 0})

    def test_a_configuration_without_the_options_is_unchanged(self):
        content = {"tasks": {"name": "images"}, "model": {"name": "conv4"}}
        assert not [key for key in to_dict(parse_experiment(content))["tasks"] if "train" in key]


@pytest.mark.parametrize("split", SPLITS)
def test_an_episode_names_the_classes_of_its_labels(tasks, split):
    episode = tasks.episode(3, num_tasks=4, split=split)
    begin = {"train": 0, "val": 10, "test": 16}[split]
    owners, _ = decoded(episode.query_x)
    assert episode.classes.shape == (4, 5)
    assert torch.equal(begin + episode.classes.gather(1, episode.query_y), owners)
