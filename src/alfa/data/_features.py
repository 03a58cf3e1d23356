"""Features of a pretrained backbone in place of images."""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from alfa._io import write_atomic
from alfa.backbones import open_backbone
from alfa.data._base import Signature, Split
from alfa.data._image_format import ImageFormat
from alfa.data._image_set import Classes, ImageSet
from alfa.data._open import data_folder
from alfa.data._store import Store


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """The images of a dataset as features of a pretrained backbone.

    The backbone computes the features of a class when a task first draws it, or `prepare` computes
    them in advance. With a `folder`, the features of each class are saved there, so that other
    processes and later runs read them; they stay valid until the images or the weights change.

    Attributes:
        images: the images.
        backbone: the name of the backbone.
        folder: where the features are saved; None to keep them in memory only.

    Examples:
        >>> from alfa.data import FeatureSet, FewShot, Strokes
        >>> from alfa.testing import register_small_backbone
        >>> name = register_small_backbone()
        >>> features = FeatureSet(Strokes(num_classes=30, num_examples=20).images(), name)
        >>> FewShot(features, way=5, shot=1).episode(0, num_tasks=4).support_x.shape
        torch.Size([4, 5, 8])
    """

    images: ImageSet
    backbone: str
    folder: Path | None = None
    _known: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    @classmethod
    def saved(cls, images: ImageSet, backbone: str) -> FeatureSet:
        """Return features that are saved in the folder of the datasets."""
        return cls(images, backbone, data_folder() / "features")

    @property
    def name(self) -> str:
        return self.images.name

    @property
    def splits(self) -> Mapping[Split, Classes]:
        return self.images.splits

    @property
    def store(self) -> Store | None:
        return self.images.store

    @property
    def source(self) -> str:
        return self.images.source

    @property
    def digest(self) -> str:
        """Identifies prepared images and the weights of the backbone; empty for others."""
        fingerprint = open_backbone(self.backbone).fingerprint
        return self.images.digest and f"{self.images.digest}-{fingerprint}"

    @property
    def shape(self) -> tuple[int]:
        """The number of features."""
        return (open_backbone(self.backbone).num_features,)

    # Features need no normalization.
    mean: Sequence[float] = ()
    std: Sequence[float] = ()

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return the features of images by their indices ``[...]``, ``[..., feature]``."""
        if self.store is not None:
            self.store.check_unchanged()
        new = np.empty((*numbers.shape, *self.shape), np.float32)
        starts = np.sort(list(self._counts))
        owners = starts[np.searchsorted(starts, numbers, side="right") - 1]
        for first in map(int, np.unique(owners)):
            chosen = owners == first
            new[chosen] = self._of_class(first)[numbers[chosen] - first]
        return new

    def normalised(self, features: np.ndarray) -> Tensor:
        """Convert features from `take` to inputs of a model."""
        return torch.from_numpy(features)

    def prepare(
        self, split: Split, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        """Compute the features of all images of a split, or read those that are saved.

        `on_progress` is called with the number of finished images and their total.
        """
        classes = self.splits[split]
        done, total = 0, int(classes.count.sum())

        def on_image(number: int) -> None:
            on_progress(done + number, total)

        for first, count in zip(map(int, classes.first), map(int, classes.count), strict=True):
            self._of_class(first, on_image)
            done += count
            on_progress(done, total)

    @functools.cached_property
    def _counts(self) -> dict[int, int]:
        """The number of images of each class, by the index of its first image."""
        classes = self.images.splits.values()
        return {int(f): int(n) for c in classes for f, n in zip(c.first, c.count, strict=True)}

    def _of_class(
        self, first: int, on_image: Callable[[int], None] = lambda number: None
    ) -> np.ndarray:
        """Return the features of a class by the index of its first image."""
        if first not in self._known:
            found = self._load(first)
            if found is None:
                found = self._compute(first, on_image)
                self._save(first, found)
            self._known[first] = found
        return self._known[first]

    def _compute(self, first: int, on_image: Callable[[int], None]) -> np.ndarray:
        found = np.empty((self._counts[first], *self.shape), np.float32)
        for number in range(len(found)):
            pixels = self.images.take(np.array(first + number)).transpose(1, 2, 0)
            levels, _ = self._format.decode(pixels)
            found[number] = self._format.inputs(levels[None])[0]
            on_image(number + 1)
        return found

    def _load(self, first: int) -> np.ndarray | None:
        """Read the features of a class; return None if they are missing or damaged."""
        if self.folder is None:
            return None
        try:
            found: np.ndarray = np.load(self._path(self.folder, first), allow_pickle=False)
        except (FileNotFoundError, ValueError, EOFError):
            return None
        is_whole = found.shape == (self._counts[first], *self.shape) and found.dtype == np.float32
        return found if is_whole else None

    def _save(self, first: int, features: np.ndarray) -> None:
        if self.folder is not None:
            buffer = io.BytesIO()
            np.save(buffer, features)
            write_atomic(self._path(self.folder, first), buffer.getvalue())

    def _path(self, folder: Path, first: int) -> Path:
        return folder / f"{self.name}-{self._key}" / f"{first}-{self._counts[first]}.npy"

    @functools.cached_property
    def _key(self) -> str:
        """Identifies the images, also those in memory, and the weights of the backbone."""
        found = hashlib.sha256(open_backbone(self.backbone).fingerprint.encode())
        found.update(repr((self.images.digest, self.images.shape)).encode())
        if not self.images.digest:
            found.update(np.ascontiguousarray(self.images.images).data)
        return found.hexdigest()[:16]

    @functools.cached_property
    def _format(self) -> ImageFormat:
        signature = Signature(self.shape, 1, "cross_entropy", backbone=self.backbone)
        return ImageFormat.of(signature)


AnyImages = ImageSet | FeatureSet
"""Images, or their features."""


def as_inputs(images: AnyImages, signature: Signature) -> AnyImages:
    """Convert images or features to the inputs of a model that was trained on other tasks."""
    original = original_images(images)
    if not signature.backbone:
        return original.like(signature.input_shape, signature.mean, signature.std)
    if isinstance(images, FeatureSet) and images.backbone == signature.backbone:
        return images
    # Nothing of a user's images in memory is saved.
    make = FeatureSet if original.store is None else FeatureSet.saved
    return make(original, signature.backbone)


def original_images(images: AnyImages) -> ImageSet:
    """Return the images that features were computed from, or the images themselves."""
    return images.images if isinstance(images, FeatureSet) else images
