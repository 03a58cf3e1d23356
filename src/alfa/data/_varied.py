"""Tasks with varying numbers of classes and examples, from one or more sets of images."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
import torch
from pydantic import BeforeValidator

from alfa.data._base import Group, Signature, Split, grouped, register_tasks, task_rng
from alfa.data._features import (
    AnyImages,
    FeatureSet,
    as_inputs,
    original_images,
)
from alfa.data._image_tasks import ImageTasks
from alfa.data._open import open_images, prepared
from alfa.data._sampler import Composition, Limits, Related, Sampler
from alfa.data.sources import SOURCES
from alfa.errors import ConfigError, DataError
from alfa.types import Count, Episode, PositiveFloat

# A single name needs no list.
Names = Annotated[Sequence[str], BeforeValidator(lambda n: [n] if isinstance(n, str) else n)]
_HALF = (0.5, 0.5, 0.5)


class Varied(ImageTasks):
    """Tasks with varying numbers of classes and examples, drawn as in Meta-Dataset.

    Each task comes from one random source; `Sampler` draws its classes and examples.

    Args:
        sources: sets of images with one shape and normalization.
        weights: the relative frequency of each source; equal by default.
        related: for a source's name and a split, the classes that may form a task together.
        limits: limits on the size of tasks.

    Examples:
        >>> from alfa.data import Strokes, Varied
        >>> tasks = Varied([Strokes(num_classes=60, num_examples=20).images()])
        >>> sizes = [tasks.episode(i, num_tasks=1).support_x.shape[1] for i in range(3)]
        >>> sizes
        [139, 206, 129]
    """

    varies = True

    def __init__(
        self,
        sources: Sequence[AnyImages],
        *,
        weights: Sequence[float] | None = None,
        related: Mapping[tuple[str, Split], Related] | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        if not sources:
            raise ConfigError("`sources` must contain at least one set of images, got none.")
        shares = np.ones(len(sources)) if weights is None else np.array(weights, dtype=float)
        # NaN is not above 0, and the sum of finite numbers may be infinite.
        is_positive = (shares > 0).all() and math.isfinite(sum(shares.tolist()))
        if len(shares) != len(sources) or not is_positive:
            raise ConfigError(
                f"`weights` must be a finite number above 0 for each of {len(sources)} sources, "
                f"got {shares.tolist()}."
            )
        self.sources, self.limits, self.weights = tuple(sources), limits, weights
        self.related = dict(related or {})
        first = self.sources[0]
        for other in self.sources:
            if _kind(other) != _kind(first):
                raise ConfigError(
                    f"{other.name!r} has {_kind(other)}, but {first.name!r} has {_kind(first)}; "
                    "convert them with `ImageSet.like`."
                )
        self._shares = shares / shares.sum()
        self.input_shape, self.num_outputs = first.shape, limits.max_way
        self._samplers: dict[Split, list[Sampler]] = {}

    def source_digest(self, source: AnyImages) -> str:
        # The original dataset determines which classes are related.
        is_related = source.name in {name for name, _ in self.related}
        return f"{source.digest}+{source.source}" if is_related and source.source else source.digest

    def names_digest(self, split: Split) -> str:
        related = {name for name, _ in self.related}
        made_from = [_source_of(source) for source in self.sources if source.name in related]
        return " ".join([super().names_digest(split), *made_from])

    def like(self, signature: Signature) -> Varied:
        return self._with([as_inputs(source, signature) for source in self.sources])

    def with_photos(self) -> Varied:
        return self._with([original_images(source) for source in self.sources])

    def _with(self, sources: Sequence[AnyImages]) -> Varied:
        return Varied(sources, weights=self.weights, related=self.related, limits=self.limits)

    def check(self, *splits: Split) -> None:
        """Raise a DataError that lists all faults if a source has no tasks of these splits."""
        found = [
            (source, *self._fault(source, split)) for source in self.sources for split in splits
        ]
        faults = [(source, fault, is_fixable) for source, fault, is_fixable in found if fault]
        if faults:
            why = "; ".join(f"{source.name} {fault}" for source, fault, _ in faults)
            small = dict.fromkeys(source.name for source, _, is_fixable in faults if is_fixable)
            advice = f", or prepare {', '.join(small)} again with more images" if small else ""
            raise DataError(f"these tasks cannot be drawn: {why}; remove these sources{advice}.")

    def _fault(self, source: AnyImages, split: Split) -> tuple[str, bool]:
        """Return a reason why no tasks can be drawn, if any, and True if more images would help."""
        if split not in source.splits:
            fault, name = f"has no {split} classes", _source_of(source)
            published = SOURCES.get(name).published if name in SOURCES else {}
            if published and not {"train", split} & set(published):
                return f"is for testing only: it {fault}", False
            if split in published:
                fault += f": none of the {published[split][0]} published ones was prepared"
            return fault, True
        classes = source.splits[split]
        few = [name for name, count in zip(classes.names, classes.count, strict=True) if count < 2]
        if few:
            return f"has {split} classes with fewer than 2 images: {', '.join(few)}", True
        try:
            self._sampler(source, split)
        except ConfigError as error:
            return f"has too few {split} classes: {str(error).rstrip('.')}", True
        return "", True

    def _sampler(self, source: AnyImages, split: Split) -> Sampler:
        related = self.related.get((source.name, split))
        return Sampler(source.splits[split].count, related=related, limits=self.limits)

    def _drawn(
        self, index: int, split: Split, seed: int
    ) -> tuple[AnyImages, Composition, list[np.ndarray]]:
        """Draw the source of a task, its composition, and the image indices of each class."""
        if split not in self._samplers:
            self.check(split)
            self._samplers[split] = [self._sampler(source, split) for source in self.sources]
        rng = task_rng(seed, split, index)
        number = int(rng.choice(len(self.sources), p=self._shares))
        drawn = self._samplers[split][number].draw(rng)
        classes = self.sources[number].splits[split]
        numbers = [
            classes.first[c] + rng.choice(classes.count[c], shot + drawn.num_query, replace=False)
            for c, shot in zip(drawn.classes, drawn.num_support, strict=True)
        ]
        return self.sources[number], drawn, numbers

    def draw(
        self, index: int, *, split: Split = "train", seed: int = 0
    ) -> tuple[AnyImages, Composition]:
        """Draw the source and the composition of a task."""
        return self._drawn(index, split, seed)[:2]

    def episode(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> Episode:
        """Draw tasks `first`, `first` + 1, ... as one stack; raise if they differ in size."""
        groups = self.groups(first, num_tasks=num_tasks, split=split, seed=seed)
        if len(groups) > 1:
            raise ConfigError(
                f"{num_tasks} tasks have {len(groups)} different sizes and cannot be one stack; "
                "draw them one by one, or with `groups`."
            )
        return groups[0].episode

    def groups(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> list[Group]:
        indices = range(first, first + num_tasks)
        return grouped(indices, [self._task(index, split, seed) for index in indices])

    def _task(self, index: int, split: Split, seed: int) -> Episode:
        source, drawn, numbers = self._drawn(index, split, seed)
        pairs = list(zip(numbers, drawn.num_support, strict=True))
        support = np.concatenate([own[:shot] for own, shot in pairs])
        query = np.concatenate([own[shot:] for own, shot in pairs])
        labels = np.arange(len(drawn.classes))
        # The classes of all sources are numbered consecutively.
        earlier = self.sources[: self.sources.index(source)]
        num_before = sum(len(other.splits[split]) for other in earlier)
        return Episode(
            source.normalised(source.take(support)).unsqueeze(0),
            torch.from_numpy(labels.repeat(drawn.num_support)).unsqueeze(0),
            source.normalised(source.take(query)).unsqueeze(0),
            torch.from_numpy(labels.repeat(drawn.num_query)).unsqueeze(0),
            classes=torch.from_numpy(drawn.classes + num_before).unsqueeze(0),
        )

    def largest(self, num_tasks: int) -> Episode:
        """Return tasks of the largest possible size, whose images are zeros."""
        limits = self.limits
        all_classes = [classes for source in self.sources for classes in source.splits.values()]
        way = min(limits.max_way, max(map(len, all_classes)))
        count = max(int(classes.count.max()) for classes in all_classes)
        num_query = max(1, min(limits.max_query, count // 2))
        size = min(limits.max_support, way * min(limits.max_support_per_class, count))
        labels = torch.arange(way)
        # The first classes have an additional example, to reach the limit exactly.
        num_support = size // way + (labels < size % way).long()
        support_y = labels.repeat_interleave(num_support).repeat(num_tasks, 1)
        query_y = labels.repeat_interleave(num_query).repeat(num_tasks, 1)
        support_x, query_x = (
            torch.zeros(1, y.shape[1], *self.input_shape).expand(
                num_tasks, *[-1] * (1 + len(self.input_shape))
            )
            for y in (support_y, query_y)
        )
        return Episode(support_x, support_y, query_x, query_y)


@register_tasks("meta-dataset")
class MetaDataset(Varied):
    """Tasks from prepared datasets, drawn as in Meta-Dataset.

    Images are converted to one size and three channels, and normalized to [-1, 1].

    Args:
        dataset: the name of a prepared dataset, or several names, such as
            ``["md-omniglot", "md-flower"]``.
        weights: the relative frequency of each dataset; equal by default.
        size: the side of the images that a model receives.
        stored_size: the side of the prepared images; by default `size`, or the only prepared size.
        backbone: the name of a pretrained backbone, whose features replace the images.
        min_way: the smallest number of classes in a task.
        max_way: the largest number of classes in a task.
        max_query: the largest number of query images per class.
        max_support: the largest number of support images in a task.
    """

    @classmethod
    def dataset_overrides(cls, dataset: str, size: int | None) -> list[str]:
        stored_size = "none" if size is None else size
        name = json.dumps(dataset, ensure_ascii=False)
        return [f"tasks.dataset=[{name}]", "tasks.weights=none", f"tasks.stored_size={stored_size}"]

    def __init__(
        self,
        *,
        dataset: Names = ("md-ilsvrc",),
        weights: Sequence[PositiveFloat] | None = None,
        size: Count = 84,
        stored_size: Count | None = None,
        backbone: str | None = None,
        min_way: Count = 5,
        max_way: Count = 50,
        max_query: Count = 10,
        max_support: Count = 500,
    ) -> None:
        if len(set(dataset)) < len(dataset):
            raise ConfigError(f"`dataset` must contain each name only once, got {list(dataset)}.")
        limits = Limits(min_way, max_way, max_query, max_support)
        known = prepared()
        sizes = [stored_size or (size if size in known.get(n, []) else None) for n in dataset]
        opened = [open_images(n, size=side) for n, side in zip(dataset, sizes, strict=True)]
        related = {place: found for images in opened for place, found in related_in(images).items()}
        sources: list[AnyImages] = []
        for images in opened:
            seen = images.like((3, size, size), _HALF, _HALF)
            sources.append(seen if backbone is None else FeatureSet.saved(seen, backbone))
        super().__init__(sources, weights=weights, related=related, limits=limits)


def _kind(images: AnyImages) -> str:
    """Describe the properties that all sources must share."""
    return f"images {list(images.shape)} with mean {list(images.mean)} and std {list(images.std)}"


def _source_of(images: AnyImages) -> str:
    """Return the dataset that images were prepared from, which may have another name."""
    return images.source or images.name


def related_in(images: AnyImages) -> dict[tuple[str, Split], Related]:
    """Return the related classes of a dataset by its name and split."""
    found = {
        (images.name, split): related_classes(_source_of(images), split, classes.names)
        for split, classes in images.splits.items()
    }
    return {place: related for place, related in found.items() if related is not None}


def related_classes(dataset: str, split: Split, names: Sequence[str]) -> Related | None:
    """Return the classes of a dataset that may form a task together; None for any classes."""
    return SOURCES.get(dataset)().related_classes(split, names) if dataset in SOURCES else None
