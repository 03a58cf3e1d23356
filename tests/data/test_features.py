"""Tasks on features of a pretrained backbone: values, files, and conversions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from alfa.backbones import BACKBONES, Backbone, Preprocessing, open_backbone, register_backbone
from alfa.data import (
    Classes,
    FeatureSet,
    FewShot,
    ImageFormat,
    Images,
    ImageSet,
    Signature,
    Strokes,
    Varied,
    decode,
)
from alfa.errors import ConfigError
from alfa.testing import register_small_backbone

SMALL = register_small_backbone()


def photos(channels: int = 3, side: int = 30, seed: int = 0) -> ImageSet:
    """Return random images of six training and six test classes with five images each."""
    rng = np.random.default_rng(seed)

    def classes(prefix: str) -> dict[str, np.ndarray]:
        shape = (5, channels, side, side)
        return {f"{prefix}{n}": rng.integers(0, 256, shape, np.uint8) for n in range(6)}

    return ImageSet.of_arrays("photos", {"train": classes("a"), "test": classes("b")})


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the images whose features are computed."""
    counts: list[int] = []
    true = Backbone.features

    def features(self: Backbone, levels: np.ndarray) -> np.ndarray:
        counts.append(len(levels))
        return true(self, levels)

    monkeypatch.setattr(Backbone, "features", features)
    return counts


@pytest.mark.parametrize("channels", [1, 3])
def test_features_are_those_of_the_cropped_images(channels: int) -> None:
    images = photos(channels)
    numbers = np.array([[0, 7], [59, 7]])
    found = FeatureSet(images, SMALL).take(numbers)
    assert found.shape == (2, 2, 8)
    backbone = open_backbone(SMALL)
    own = ImageFormat.of(Signature((8,), 5, "cross_entropy", backbone=SMALL))
    assert own.shape == (3, 24, 24)
    for place in np.ndindex(2, 2):
        # The shorter side becomes 28 pixels, of which the central 24 are used.
        pixels = images.images[numbers[place]].transpose(1, 2, 0)
        levels, _ = decode(pixels, size=24, num_channels=3, crop=own.crop)
        assert np.array_equal(found[place], backbone.features(levels[None])[0])
        assert np.array_equal(found[place], own.inputs(levels[None])[0].numpy())
    assert not np.array_equal(found[0, 0], found[1, 0])
    assert np.array_equal(found[0, 1], found[1, 1])


def test_tasks_draw_the_same_images_as_without_a_backbone() -> None:
    images = photos()
    features = FeatureSet(images, SMALL)
    sizes = {"way": 3, "shot": 2, "num_query": 3}
    tasks, of_images = FewShot(features, **sizes), FewShot(images, **sizes)
    assert tasks.input_shape == (8,)
    episode = tasks.episode(4, num_tasks=2, split="test", seed=1)
    assert episode.support_x.shape == (2, 6, 8)
    _, numbers = of_images.draw(4, num_tasks=2, split="test", seed=1)
    expected = torch.from_numpy(features.take(numbers[:, :, :2].reshape(2, -1)))
    assert torch.equal(episode.support_x, expected)
    assert tasks.with_photos().images is images
    assert of_images.with_photos() is of_images


def test_saved_features_are_read_and_not_computed(tmp_path: Path, computed: list[int]) -> None:
    first = FeatureSet(photos(), SMALL, tmp_path)
    expected = first.take(np.arange(60))
    assert sum(computed) == 60
    first.take(np.arange(60))
    second = FeatureSet(photos(), SMALL, tmp_path)
    assert np.array_equal(second.take(np.arange(60)), expected)
    assert sum(computed) == 60
    # Only the classes of the images that are taken are computed.
    FeatureSet(photos(), SMALL).take(np.array([3, 4, 5]))
    assert sum(computed) == 60 + 10


def test_a_part_of_the_classes_reads_the_same_files(tmp_path: Path, computed: list[int]) -> None:
    FeatureSet(photos(), SMALL, tmp_path).prepare("train")
    images = photos()
    all_classes = images.splits["train"]
    some = Classes(all_classes.names[2:4], all_classes.first[2:4], all_classes.count[2:4])
    part = FeatureSet(replace(images, splits={"train": some}), SMALL, tmp_path)
    part.prepare("train")
    assert sum(computed) == 30
    # With fewer images, a class is another one.
    few = Classes(all_classes.names, all_classes.first, all_classes.count - 1)
    FeatureSet(replace(images, splits={"train": few}), SMALL, tmp_path).take(np.array([0]))
    assert sum(computed) == 34


def test_other_images_weights_and_crops_have_their_own_files(
    tmp_path: Path, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alfa.backbones._base.BACKBONES", dict(BACKBONES))
    small = open_backbone(SMALL)

    @register_backbone("wide")
    def wide() -> Backbone:
        return Backbone("wide", small.network, 8, Preprocessing(size=24, resize=24))

    sets = [
        FeatureSet(photos(), SMALL, tmp_path),
        FeatureSet(photos(seed=1), SMALL, tmp_path),
        FeatureSet(photos().like((3, 8, 8), (0, 0, 0), (1, 1, 1)), SMALL, tmp_path),
        FeatureSet(photos(), "wide", tmp_path),
    ]
    found = [features.take(np.arange(5)) for features in sets]
    assert sum(computed) == 4 * 5
    assert len(list(tmp_path.rglob("0-5.npy"))) == 4
    for number, values in enumerate(found):
        assert not any(np.array_equal(values, other) for other in found[:number])


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"text", None])
def test_damaged_files_are_computed_again(
    damage: bytes | None, tmp_path: Path, computed: list[int]
) -> None:
    expected = FeatureSet(photos(), SMALL, tmp_path).take(np.arange(5))
    (path,) = tmp_path.rglob("*.npy")
    whole = path.read_bytes()
    path.write_bytes(whole[:-4] if damage is None else damage)
    again = FeatureSet(photos(), SMALL, tmp_path).take(np.arange(5))
    assert np.array_equal(again, expected)
    assert sum(computed) == 10
    assert path.read_bytes() == whole


def test_preparation_reports_every_image_and_continues_after_a_stop(
    tmp_path: Path, computed: list[int]
) -> None:
    steps: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        steps.append((done, total))
        if done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FeatureSet(photos(), SMALL, tmp_path).prepare("train", stop)
    assert steps[-1] == (12, 30)
    assert len(list(tmp_path.rglob("*.npy"))) == 2
    steps.clear()
    FeatureSet(photos(), SMALL, tmp_path).prepare("train", lambda *step: steps.append(step))
    # The third class had not been finished.
    assert sum(computed) == 12 + 20
    assert steps[:3] == [(5, 30), (10, 30), (11, 30)]
    assert steps[-1] == (30, 30)


def test_tasks_of_several_sources_are_prepared_together(computed: list[int]) -> None:
    sources = [FeatureSet(photos(seed=seed), SMALL) for seed in range(2)]
    tasks = Varied(sources)
    steps: list[tuple[int, int]] = []
    tasks.prepare("test", lambda *step: steps.append(step))
    assert steps[-1] == (60, 60)
    assert sorted(steps) == steps
    assert sum(computed) == 60
    tasks.prepare("val")
    FewShot(photos(), way=2, shot=1, num_query=1).prepare("test", lambda *step: steps.clear())
    assert len(steps) > 0
    shown = tasks.with_photos()
    assert [images.shape for images in shown.sources] == [(3, 30, 30)] * 2


def test_signatures_convert_between_images_and_features() -> None:
    of_images = FewShot(photos(), way=3, shot=1, num_query=2)
    of_features = FewShot(FeatureSet(photos(), SMALL), way=3, shot=1, num_query=2)
    signature = of_features.signature()
    assert (signature.backbone, signature.input_shape, signature.mean) == (SMALL, (8,), ())
    there = of_images.like(signature)
    assert torch.equal(
        there.episode(0, num_tasks=1).query_x, of_features.episode(0, num_tasks=1).query_x
    )
    # Features of images in memory are not saved.
    assert there.images.folder is None
    assert of_features.like(signature).images is of_features.images
    back = of_features.like(of_images.signature())
    assert torch.equal(
        back.episode(0, num_tasks=1).query_x, of_images.episode(0, num_tasks=1).query_x
    )


def test_the_digest_identifies_prepared_images_and_weights(spots) -> None:
    tasks = Images(dataset="spots", way=2, shot=1, num_query=1, backbone=SMALL)
    plain = Images(dataset="spots", way=2, shot=1, num_query=1)
    fingerprint = open_backbone(SMALL).fingerprint
    assert tasks.signature().data == f"{plain.signature().data}-{fingerprint}"
    assert tasks.stamp() == plain.stamp()
    assert FeatureSet(photos(), SMALL).digest == ""


def test_generated_and_prepared_features_are_saved_with_the_datasets(
    spots, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    strokes = Strokes(num_classes=20, num_examples=4).images()
    monkeypatch.setattr("alfa.data._few_shot.open_images", lambda dataset, size: strokes)
    monkeypatch.setenv("ALFA_DATA", str(tmp_path))
    sizes = {"way": 2, "shot": 1, "num_query": 1}
    Images(dataset="strokes", **sizes, backbone=SMALL).episode(0, num_tasks=1)
    assert {path.parent.parent for path in tmp_path.rglob("*.npy")} == {tmp_path / "features"}


def test_features_cannot_be_augmented() -> None:
    with pytest.raises(ConfigError, match="`augment` must be False for features"):
        FewShot(FeatureSet(photos(), SMALL), way=2, shot=1, num_query=1, augment=True)
    with pytest.raises(ConfigError, match=r"unknown pretrained backbone 'smal'; .* 'small'\?"):
        FewShot(FeatureSet(photos(), "smal"), way=2, shot=1, num_query=1)
