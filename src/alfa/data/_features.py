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
from alfa.data._store import Store


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """The images of a dataset as features of a pretrained backbone.

    The backbone computes the features of a class when a task first draws it. If the images are in
    a store, the features of each class are saved in the folder of the datasets, so that other
    processes and later runs read them.

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

    def as_inputs(self, signature: Signature) -> ImageSet | FeatureSet:
        """Return the same images as inputs of a model that was trained on other tasks."""
        is_same = signature.backbone == self.backbone
        return self if is_same else self.images.as_inputs(signature)

    def prepare(
        self, split: Split, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        """Compute the features of all images of a split.

        `on_progress` is called with the number of finished images and their total.
        """
        classes = self.splits[split]
        begun, total = 0, int(classes.count.sum())
        for first, count in zip(map(int, classes.first), map(int, classes.count), strict=True):
            self._of_class(first, lambda done, begun=begun: on_progress(begun + done, total))
            begun += count

    @functools.cached_property
    def _counts(self) -> dict[int, int]:
        """The number of images of each class, by the index of its first image."""
        classes = self.images.splits.values()
        return {int(f): int(n) for c in classes for f, n in zip(c.first, c.count, strict=True)}

    def _of_class(
        self, first: int, on_progress: Callable[[int], None] = lambda done: None
    ) -> np.ndarray:
        """Return the features of a class by the index of its first image."""
        path = self._path(first)
        if first not in self._known and path is not None and path.is_file():
            self._known[first] = np.load(path, mmap_mode="r", allow_pickle=False)
        if first not in self._known:
            found = np.empty((self._counts[first], *self.shape), np.float32)
            for place in range(len(found)):
                image = self.images.take(np.array(first + place)).transpose(1, 2, 0)
                found[place] = self._format.inputs(self._format.decode(image)[0][None])[0]
                on_progress(place + 1)
            if path is not None:
                buffer = io.BytesIO()
                np.save(buffer, found)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(path, buffer.getvalue())
            self._known[first] = found
        return self._known[first]

    @functools.cached_property
    def _format(self) -> ImageFormat:
        signature = Signature(self.shape, 1, "cross_entropy", backbone=self.backbone)
        return ImageFormat.of(signature)

    def _path(self, first: int) -> Path | None:
        if self.folder is None or not self.digest:
            return None
        name = hashlib.sha256(self.digest.encode()).hexdigest()[:16]
        return self.folder / f"{self.name}-{name}" / f"{first}.npy"
