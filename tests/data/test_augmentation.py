"""Augmentation changes only the pixels of training images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alfa.data import SPLITS, FewShot, ImageSet
from alfa.types import Episode


@pytest.fixture(scope="module")
def images() -> ImageSet:
    rng = np.random.default_rng(2)
    arrays = {
        split: {
            f"{split}-{number}": rng.integers(0, 256, (12, 3, 20, 20)).astype(np.uint8)
            for number in range(6)
        }
        for split in SPLITS
    }
    return ImageSet.of_arrays("noise", arrays)


def same(one: Episode, other: Episode) -> bool:
    names = ("support_x", "support_y", "query_x", "query_y")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


@pytest.fixture
def plain(images) -> FewShot:
    return FewShot(images, way=5, shot=3, num_query=5)


@pytest.fixture
def augmented(images) -> FewShot:
    return FewShot(images, way=5, shot=3, num_query=5, augment=True)


def test_it_is_off_by_default(images, plain):
    off = FewShot(images, way=5, shot=3, num_query=5, augment=False)
    assert same(plain.episode(0, num_tasks=2), off.episode(0, num_tasks=2))


def test_it_changes_nothing_but_the_pixels_of_training_images(plain, augmented):
    one, other = (tasks.episode(0, num_tasks=3) for tasks in (plain, augmented))
    for drawn, again in zip(
        plain.draw(0, num_tasks=3), augmented.draw(0, num_tasks=3), strict=True
    ):
        assert np.array_equal(drawn, again)
    assert torch.equal(one.support_y, other.support_y)
    assert torch.equal(one.query_y, other.query_y)
    for name in ("support_x", "query_x"):
        before, after = getattr(one, name), getattr(other, name)
        assert before.shape == after.shape
        changed = (before != after).flatten(2).any(2).double().mean()
        assert changed > 0.8


@pytest.mark.parametrize("split", ["val", "test"])
def test_it_leaves_validation_and_test_alone(plain, augmented, split):
    assert same(
        plain.episode(0, num_tasks=3, split=split), augmented.episode(0, num_tasks=3, split=split)
    )


def test_it_is_the_same_every_time(images, augmented):
    again = FewShot(images, way=5, shot=3, num_query=5, augment=True)
    assert same(augmented.episode(4, num_tasks=2, seed=1), again.episode(4, num_tasks=2, seed=1))


def test_it_does_not_change_the_images_themselves(images, augmented):
    before = images.images.copy()
    augmented.episode(0, num_tasks=4)
    assert np.array_equal(images.images, before)


def test_it_flips_and_moves_up_to_a_tenth():
    picture = np.zeros((20, 1, 30, 30), np.uint8)
    picture[:, :, 15, 8] = 255
    arrays = {"train": {"cat": picture}}
    images = ImageSet.of_arrays("dot", arrays, mean=(0.0,), std=(1.0,))
    tasks = FewShot(images, way=1, shot=10, num_query=10, augment=True)
    found = tasks.episode(0, num_tasks=60).support_x.squeeze((2,)).flatten(0, 1)
    places = found.nonzero()[:, 1:]
    assert len(places) == 600
    down, right = places.T.tolist()
    assert set(down) == set(range(12, 19))
    # 8 is 21 from the other side.
    assert set(right) == set(range(5, 12)) | set(range(18, 25))
    assert 0.4 < np.mean([place > 15 for place in right]) < 0.6


@settings(max_examples=25, deadline=None)
@given(shape=st.tuples(st.sampled_from([1, 3]), st.integers(2, 40), st.integers(2, 40)))
def test_it_keeps_any_shape(shape):
    pixels = np.zeros((2, *shape), np.uint8)
    images = ImageSet.of_arrays("blank", {"train": {"cat": pixels, "dog": pixels}})
    tasks = FewShot(images, way=2, shot=1, num_query=1, augment=True)
    assert tasks.episode(0, num_tasks=2).support_x.shape == (2, 2, *shape)


def test_every_image_stays_in_its_place():
    """An image of one color is invariant to flips and shifts."""
    pixels = np.arange(60, dtype=np.uint8).reshape(6, 10, 1, 1, 1)
    pixels = np.broadcast_to(pixels, (6, 10, 3, 12, 12))
    images = ImageSet.of_arrays("colours", {"train": {f"{c}": pixels[c] for c in range(6)}})
    plain, augmented = (
        FewShot(images, way=5, shot=2, num_query=4, augment=augment) for augment in (False, True)
    )
    assert same(plain.episode(0, num_tasks=3), augmented.episode(0, num_tasks=3))
