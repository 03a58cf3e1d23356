"""Images by split and class, and their conversion for another model."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alfa.data import Classes, ImageSet, _image_set
from alfa.errors import DataError


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def random_images(
    rng: np.random.Generator, num_images: int, *shape: int, dtype: type = np.uint8
) -> np.ndarray:
    return rng.integers(0, 256, (num_images, *shape)).astype(dtype)


@pytest.fixture
def colour(rng) -> ImageSet:
    classes = {name: random_images(rng, 4, 3, 12, 12) for name in ("cat", "dog")}
    return ImageSet.of_arrays("pets", {"train": classes})


@pytest.fixture
def grey(rng) -> ImageSet:
    classes = {name: random_images(rng, 4, 1, 12, 12) for name in ("cat", "dog")}
    return ImageSet.of_arrays("pets", {"train": classes})


class TestArrays:
    def test_classes_lie_one_after_the_other(self, rng):
        cat, dog, owl = (random_images(rng, count, 3, 8, 8) for count in (2, 5, 3))
        images = ImageSet.of_arrays(
            "pets", {"train": {"cat": cat, "dog": dog}, "val": {"owl": owl}}
        )
        assert images.shape == (3, 8, 8)
        assert images.splits["train"].names == ("cat", "dog")
        assert images.splits["train"].first.tolist() == [0, 2]
        assert images.splits["train"].count.tolist() == [2, 5]
        assert images.splits["val"].first.tolist() == [7]
        np.testing.assert_array_equal(images.images, np.concatenate([cat, dog, owl]))

    def test_pixels_are_normalised_to_plus_and_minus_one_by_default(self, colour):
        assert (colour.mean, colour.std) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

    def test_own_values_to_normalise_by_may_be_arrays(self, rng):
        arrays = {"test": {"cat": random_images(rng, 2, 3, 8, 8)}}
        images = ImageSet.of_arrays("pets", arrays, mean=np.full(3, 0.4), std=np.full(3, 0.2))
        assert list(images.mean) == [0.4] * 3
        assert list(images.std) == [0.2] * 3

    def test_all_arrays_that_are_not_such_images_are_named(self, rng):
        arrays = {
            "train": {
                "good": random_images(rng, 2, 3, 8, 8),
                "float": random_images(rng, 2, 3, 8, 8, dtype=np.float32),
            },
            "test": {"large": random_images(rng, 2, 3, 9, 9), "flat": random_images(rng, 2, 8)},
        }
        with pytest.raises(DataError) as caught:
            ImageSet.of_arrays("pets", arrays)
        assert str(caught.value) == (
            "the images of 'pets' must be uint8 arrays [image, channel, height, width], all of "
            "3 x 8 x 8 like the first class, got float32 [2, 3, 8, 8] for train/float, uint8 "
            "[2, 3, 9, 9] for test/large, uint8 [2, 8] for test/flat."
        )

    def test_a_first_array_that_is_no_images_is_named_too(self, rng):
        arrays = {
            "train": {"flat": random_images(rng, 2, 8), "cat": random_images(rng, 2, 1, 8, 8)}
        }
        with pytest.raises(DataError, match=r"got uint8 \[2, 8\] for train/flat"):
            ImageSet.of_arrays("pets", arrays)

    @pytest.mark.parametrize("arrays", [{}, {"train": {}}])
    def test_nothing_at_all_is_refused(self, arrays):
        with pytest.raises(DataError, match="'pets' has no classes; pass the images of at least"):
            ImageSet.of_arrays("pets", arrays)

    def test_an_unknown_split_is_refused_with_what_was_meant(self, rng):
        arrays = {"trian": {"cat": random_images(rng, 2, 1, 8, 8)}}
        with pytest.raises(DataError) as caught:
            ImageSet.of_arrays("pets", arrays)
        assert str(caught.value) == (
            "the splits of 'pets' must be train, val, test, got 'trian'. Did you mean 'train'?"
        )

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"mean": (0.5,)}, "`mean` of 'pets' must have 3 values, one for each channel, got 1"),
            (
                {"std": (0.5,) * 4},
                "`std` of 'pets' must have 3 values, one for each channel, got 4",
            ),
            ({"std": (0.5, 0, 0.5)}, r"`std` of 'pets' must be above 0, got \[0.5, 0, 0.5\]"),
        ],
    )
    def test_values_to_normalise_by_must_fit(self, rng, options, sentence):
        arrays = {"train": {"cat": random_images(rng, 2, 3, 8, 8)}}
        with pytest.raises(DataError, match=sentence):
            ImageSet.of_arrays("pets", arrays, **options)


def test_what_is_not_images_is_refused():
    classes = Classes(("cat",), np.array([0]), np.array([2]))
    with pytest.raises(DataError, match=r"got float64 \[2, 8, 8\]"):
        ImageSet("pets", np.zeros((2, 8, 8)), {"train": classes}, (0.5,), (0.5,))


class TestTake:
    def test_images_come_in_the_order_asked_for(self, colour):
        numbers = np.array([[3, 0], [7, 3]])
        taken = colour.take(numbers)
        assert taken.shape == (2, 2, 3, 12, 12)
        np.testing.assert_array_equal(taken, colour.images[numbers])

    def test_what_is_taken_may_be_changed(self, tmp_path: Path, colour):
        np.save(tmp_path / "images.npy", colour.images)
        mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
        images = ImageSet("pets", mapped, colour.splits, colour.mean, colour.std)
        taken = images.take(np.array([1, 2]))
        taken[:] = 0
        assert type(taken) is np.ndarray
        np.testing.assert_array_equal(mapped, colour.images)


class TestLike:
    def test_grey_images_are_repeated_for_every_channel(self, grey):
        seen = grey.like((3, 12, 12), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
        taken = seen.take(np.arange(8))
        assert seen.shape == taken.shape[1:] == (3, 12, 12)
        for channel in range(3):
            np.testing.assert_array_equal(taken[:, channel], grey.images[:, 0])

    def test_coloured_images_become_grey_by_their_luma(self, colour):
        taken = colour.like((1, 12, 12), (0.5,), (0.5,)).take(np.arange(8))
        red, green, blue = np.moveaxis(colour.images.astype(float), 1, 0)
        luma = 0.299 * red + 0.587 * green + 0.114 * blue
        assert taken.shape == (8, 1, 12, 12)
        assert np.abs(taken[:, 0] - luma).max() <= 1

    @pytest.mark.parametrize("side", [5, 12, 30])
    def test_images_are_resized_as_pillow_does(self, colour, side):
        taken = colour.like((3, side, side), (0.5,) * 3, (0.5,) * 3).take(np.arange(8))
        for image, pixels in zip(taken, colour.images, strict=True):
            picture = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
            wanted = np.asarray(picture.resize((side, side), Image.Resampling.LANCZOS))
            np.testing.assert_array_equal(image.transpose(1, 2, 0), wanted)

    def test_size_and_channels_change_together(self, grey, colour):
        for images, num_channels in ((grey, 3), (colour, 1)):
            half = (0.5,) * num_channels
            taken = images.like((num_channels, 20, 16), half, half).take(np.array([[0, 5, 2]]))
            assert taken.shape == (1, 3, num_channels, 20, 16)
            assert taken.dtype == np.uint8

    def test_uniform_images_keep_their_value(self):
        pixels = np.full((1, 3, 40, 40), 77, np.uint8)
        images = ImageSet.of_arrays("pets", {"test": {"cat": pixels}})
        assert (images.like((3, 84, 84), (0.5,) * 3, (0.5,) * 3).take(np.array([0])) == 77).all()
        assert (images.like((1, 28, 28), (0.5,), (0.5,)).take(np.array([0])) == 77).all()

    def test_the_model_s_values_are_to_normalise_by(self, colour):
        seen = colour.like((3, 12, 12), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
        assert (seen.mean, seen.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
        assert (seen.name, seen.splits) == (colour.name, colour.splits)

    def test_only_images_that_are_taken_are_converted(self, colour, monkeypatch):
        converted = []
        real = _image_set.decode
        monkeypatch.setattr(
            _image_set, "decode", lambda *a, **options: converted.append(a) or real(*a, **options)
        )
        seen = colour.like((1, 84, 84), (0.5,), (0.5,))
        assert seen.images is colour.images
        seen.take(np.array([[1, 2, 3]]))
        assert len(converted) == 3

    def test_images_that_fit_are_not_converted(self, colour, monkeypatch):
        monkeypatch.setattr(_image_set, "decode", lambda *_, **__: pytest.fail("converted"))
        seen = colour.like(colour.shape, (0.1,) * 3, (0.2,) * 3)
        np.testing.assert_array_equal(seen.take(np.arange(8)), colour.images)

    def test_likeness_to_a_second_model_starts_from_the_images_themselves(self, colour):
        half = (0.5,) * 3
        twice = colour.like((1, 3, 3), (0.5,), (0.5,)).like((3, 10, 10), half, half)
        once = colour.like((3, 10, 10), half, half)
        numbers = np.arange(8)
        np.testing.assert_array_equal(twice.take(numbers), once.take(numbers))

    def test_other_numbers_of_channels_cannot_be_converted(self, rng):
        arrays = {"test": {"field": random_images(rng, 2, 4, 8, 8)}}
        images = ImageSet.of_arrays("satellite", arrays)
        assert images.like((4, 8, 8), (0.5,) * 4, (0.5,) * 4).shape == (4, 8, 8)
        with pytest.raises(DataError) as caught:
            images.like((3, 8, 8), (0.5,) * 3, (0.5,) * 3)
        assert str(caught.value) == (
            "the images of 'satellite' cannot be converted from 4 x 8 x 8 to 3 x 8 x 8; only "
            "images with 1 or 3 channels can be converted."
        )

    def test_images_of_other_channels_cannot_be_resized(self, rng):
        images = ImageSet.of_arrays(
            "satellite", {"test": {"field": random_images(rng, 2, 4, 8, 8)}}
        )
        with pytest.raises(DataError, match="cannot be converted from 4 x 8 x 8 to 4 x 9 x 9"):
            images.like((4, 9, 9), (0.5,) * 4, (0.5,) * 4)

    def test_values_to_normalise_by_must_fit_the_model(self, grey):
        with pytest.raises(DataError, match="`mean` of 'pets' must have 3 values, one for each"):
            grey.like((3, 12, 12), (0.5,), (0.5,) * 3)


def test_the_examples_run():
    finder = doctest.DocTestFinder()
    results = [doctest.DocTestRunner().run(test) for test in finder.find(ImageSet)]
    assert sum(result.attempted for result in results) > 3
    assert sum(result.failed for result in results) == 0
