"""Nearly equal class names, and copies of a photo."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from alfa.data import Strokes, copy_groups, decode, photo_grid, similar_names


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Cat", "cat "),
        ("cats", "cat"),
        ("golden retriever", "golden-retriever"),
        ("sparrow", "sparow"),
        ("sparrow", "sparraw"),
        ("Müller", "Mülller"),
    ],
)
def test_names_of_the_same_class_are_similar(first: str, second: str) -> None:
    assert similar_names([first, "other", second]) == [(first, second)]


@pytest.mark.parametrize(
    ("first", "second"),
    [("cat", "bat"), ("class 1", "class 2"), ("bed 1", "bed 10"), ("left", "right"), ("-", "+")],
)
def test_names_of_other_classes_are_not(first: str, second: str) -> None:
    assert similar_names([first, second]) == []


def photo(seed: int) -> np.ndarray:
    """Return smooth color noise, uint8 ``[height, width, channel]``."""
    noise = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(noise).resize((96, 96), Image.Resampling.BICUBIC))


def groups_of(images: np.ndarray) -> list[int]:
    return copy_groups(np.stack(list(map(photo_grid, images)))).tolist()


def levels(image: Image.Image | np.ndarray) -> np.ndarray:
    return decode(np.asarray(image), size=64, num_channels=3)[0]


def test_copies_of_other_sizes_and_compression_share_a_group() -> None:
    original, other = photo(0), photo(1)
    buffer = io.BytesIO()
    Image.fromarray(original).resize((70, 70)).save(buffer, "JPEG", quality=60)
    images = [original, other, Image.open(buffer), 255 - original, np.fliplr(original)]
    groups = groups_of(np.stack(list(map(levels, images))))
    assert groups[0] == groups[2]
    assert len(set(groups)) == 4


def test_flat_photos_are_no_copies() -> None:
    flat = np.stack([np.full((3, 32, 32), value, np.uint8) for value in (0, 0, 255)])
    flat[1, :, 0, 0] = 1
    assert len(set(groups_of(flat))) == 3


def test_drawings_of_a_character_are_no_copies() -> None:
    images = Strokes(num_classes=20, num_examples=20).images().images
    assert len(set(groups_of(images))) == len(images)


def test_no_photos_have_no_groups() -> None:
    assert copy_groups(np.empty((0, 768))).tolist() == []


def test_copies_are_found_across_blocks() -> None:
    images = np.random.default_rng(0).integers(0, 256, (700, 1, 8, 8), dtype=np.uint8)
    images[699] = images[3]
    groups = groups_of(images)
    assert groups[699] == groups[3]
    assert len(set(groups)) == 699
