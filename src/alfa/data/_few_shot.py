"""N-way k-shot tasks from a set of images."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from alfa.data._base import SPLITS, Signature, Split, register_tasks, task_rng
from alfa.data._features import (
    AnyImages,
    FeatureSet,
    as_inputs,
    original_images,
)
from alfa.data._image_tasks import ImageTasks
from alfa.data._open import open_images
from alfa.errors import ConfigError, DataError
from alfa.types import Count, Episode


class FewShot(ImageTasks):
    """Tasks with `way` classes, `shot` support images, and `num_query` query images per class.

    The classes of a task are distinct and in random order, which determines their labels. A split
    may be too small until its tasks are drawn; `check` validates splits in advance.

    Args:
        images: the images; `ImageSet.like` converts them for a model trained on other images, and
            `FeatureSet` replaces them by features of a pretrained backbone.
        way: classes per task.
        shot: support images per class.
        num_query: query images per class.
        augment: flip training images horizontally and shift them at random; not for characters.
        val_way: classes per validation task, if fewer than `way`.
        train_way: classes per training task, if other than `way`; needs an init for any number of
            classes.
        train_shot: support images per class of training tasks, if other than `shot`.
        train_num_query: query images per class of training tasks, if other than `num_query`.

    Examples:
        >>> from alfa.data import FewShot, Strokes
        >>> tasks = FewShot(Strokes(num_classes=30, num_examples=20).images(), way=5, shot=1)
        >>> episode = tasks.episode(0, num_tasks=4)
        >>> episode.support_x.shape, episode.query_y.shape
        (torch.Size([4, 5, 1, 28, 28]), torch.Size([4, 75]))
    """

    def __init__(
        self,
        images: AnyImages,
        *,
        way: Count = 5,
        shot: Count = 5,
        num_query: Count = 15,
        augment: bool = False,
        val_way: Count | None = None,
        train_way: Count | None = None,
        train_shot: Count | None = None,
        train_num_query: Count | None = None,
    ) -> None:
        sizes = {"way": way, "shot": shot, "num_query": num_query}
        train = {"train_way": train_way, "train_shot": train_shot}
        train["train_num_query"] = train_num_query
        for key, value in {**sizes, **train}.items():
            if value is not None and value < 1:
                raise ConfigError(f"`{key}` must be at least 1, got {value}.")
        if val_way is not None and not 1 <= val_way <= way:
            raise ConfigError(f"`val_way` must be from 1 to `way` ({way}), got {val_way}.")
        if augment and isinstance(images, FeatureSet):
            raise ConfigError(
                "`augment` must be False for features of a pretrained backbone, which are computed "
                "once for every image."
            )
        self.images, self.sources = images, (images,)
        self.way, self.shot, self.num_query = way, shot, num_query
        self.train_way, self.train_shot, self.train_num_query = train.values()
        self.augment, self.val_way = augment, val_way
        self.input_shape, self.num_outputs = images.shape, way
        if "train" in images.splits:
            self.num_train_classes = len(images.splits["train"])
        self._faults = {split: self._faults_of(split) for split in SPLITS}
        if all(self._faults.values()):
            self.check(*(images.splits or SPLITS))

    def way_of(self, split: Split) -> int:
        """Return the number of classes per task of a split."""
        own = {"train": self.train_way, "val": self.val_way}.get(split)
        return self.way if own is None else own

    def shot_of(self, split: Split) -> int:
        """Return the number of support images per class of a split."""
        return (self.train_shot if split == "train" else None) or self.shot

    def num_query_of(self, split: Split) -> int:
        """Return the number of query images per class of a split."""
        return (self.train_num_query if split == "train" else None) or self.num_query

    def like(self, signature: Signature) -> FewShot:
        return self._with(as_inputs(self.images, signature))

    def with_photos(self) -> FewShot:
        images = original_images(self.images)
        return self if images is self.images else self._with(images)

    def _with(self, images: AnyImages) -> FewShot:
        """Return the same tasks of other images, without augmentation."""
        return FewShot(
            images,
            way=self.way,
            shot=self.shot,
            num_query=self.num_query,
            val_way=self.val_way,
            train_way=self.train_way,
            train_shot=self.train_shot,
            train_num_query=self.train_num_query,
        )

    def check(self, *splits: Split) -> None:
        faults = [fault for split in splits for fault in self._faults[split]]
        if faults:
            raise DataError(
                f"{self.images.name} is too small for these tasks: {'; '.join(faults)}; use lower "
                "numbers, or add images."
            )

    def _faults_of(self, split: Split) -> list[str]:
        """Return the reasons why no tasks can be drawn from a split."""
        if split not in self.images.splits:
            return [f"it has no {split} classes"]
        classes, way = self.images.splits[split], self.way_of(split)
        num_examples = self.shot_of(split) + self.num_query_of(split)
        faults = []
        if len(classes) < way:
            key = "train_way" if split == "train" and self.train_way is not None else "way"
            faults.append(f"{split} has {len(classes)} classes, but `{key}` is {way}")
        sizes = zip(classes.names, classes.count, strict=True)
        small = [f"{name} ({count})" for name, count in sizes if count < num_examples]
        if small:
            faults.append(
                f"{split} has classes with fewer than {num_examples} images (`shot` + "
                f"`num_query`): {', '.join(small)}"
            )
        return faults

    def episode(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> Episode:
        classes, numbers = self.draw(first, num_tasks=num_tasks, split=split, seed=seed)
        shot, generators = self.shot_of(split), list[np.random.Generator]()
        if self.augment and split == "train":
            # Separate generators, so that augmentation does not change the drawn images.
            indices = range(first, first + num_tasks)
            generators = [task_rng(seed, split, index).spawn(1)[0] for index in indices]
        support_y, query_y = (
            torch.arange(self.way_of(split)).repeat_interleave(count).repeat(num_tasks, 1)
            for count in (shot, self.num_query_of(split))
        )
        return Episode(
            self._inputs(numbers[:, :, :shot], generators),
            support_y,
            self._inputs(numbers[:, :, shot:], generators),
            query_y,
            classes=torch.from_numpy(classes),
        )

    def draw(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw the class indices ``[task, way]`` and image indices ``[task, way, example]``."""
        self.check(split)
        classes = self.images.splits[split]
        way, num_examples = self.way_of(split), self.shot_of(split) + self.num_query_of(split)
        chosen = np.empty((num_tasks, way), dtype=np.int64)
        numbers = np.empty((num_tasks, way, num_examples), dtype=np.int64)
        for task in range(num_tasks):
            rng = task_rng(seed, split, first + task)
            chosen[task] = rng.choice(len(classes), way, replace=False)
            for label, c in enumerate(chosen[task]):
                places = rng.choice(classes.count[c], num_examples, replace=False)
                numbers[task, label] = classes.first[c] + places
        return chosen, numbers

    def _inputs(self, numbers: np.ndarray, generators: Sequence[np.random.Generator]) -> Tensor:
        """Return inputs ``[task, example, ...]``, class by class."""
        pixels = self.images.take(numbers.reshape(len(numbers), -1))
        for task, rng in enumerate(generators):
            pixels[task] = augmented(pixels[task], rng)
        return self.images.normalised(pixels)


@register_tasks("images")
class Images(FewShot):
    """N-way k-shot tasks from a generated or prepared dataset, by name.

    Args:
        dataset: ``"strokes"``, which is generated, or the name of a prepared dataset.
        size: the side of the prepared images; optional if only one size is prepared.
        seen_size: resize images to this side when they are drawn, for quick experiments.
        backbone: the name of a pretrained backbone, such as ``"efficientnet-lite0"``, whose
            features replace the images; see `alfa.backbones`.

    The other arguments are those of `FewShot`.
    """

    @classmethod
    def dataset_overrides(cls, dataset: str, size: int | None) -> list[str]:
        prepared = "none" if size is None else size
        # JSON quotes names that look like numbers.
        name = json.dumps(dataset, ensure_ascii=False)
        return [f"tasks.dataset={name}", f"tasks.size={prepared}"]

    def __init__(
        self,
        *,
        dataset: str = "strokes",
        size: Count | None = None,
        way: Count = 5,
        shot: Count = 5,
        num_query: Count = 15,
        augment: bool = False,
        seen_size: Count | None = None,
        backbone: str | None = None,
        val_way: Count | None = None,
        train_way: Count | None = None,
        train_shot: Count | None = None,
        train_num_query: Count | None = None,
    ) -> None:
        images = open_images(dataset, size=size)
        if seen_size is not None:
            shape = (images.shape[0], seen_size, seen_size)
            images = images.like(shape, images.mean, images.std)
        super().__init__(
            images if backbone is None else FeatureSet.saved(images, backbone),
            way=way,
            shot=shot,
            num_query=num_query,
            augment=augment,
            val_way=val_way,
            train_way=train_way,
            train_shot=train_shot,
            train_num_query=train_num_query,
        )


def augmented(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Flip each image horizontally at random, and shift it by up to a tenth of its side."""
    num_images, _, height, width = pixels.shape
    border = max(1, min(height, width) // 10)
    edges = ((0, 0), (0, 0), (border, border), (border, border))
    padded = np.pad(pixels, edges, mode="reflect")
    flips = rng.integers(0, 2, (num_images,))
    moves = rng.integers(0, 2 * border + 1, (num_images, 2))
    new = np.empty_like(pixels)
    for number, (flip, (down, right)) in enumerate(zip(flips, moves, strict=True)):
        image = padded[number, :, down : down + height, right : right + width]
        new[number] = image[:, :, ::-1] if flip else image
    return new
