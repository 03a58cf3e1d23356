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
from alfa.data._image_set import Classes, ImageSet, ImageTasks
from alfa.data._open import open_images, prepared
from alfa.data._sampler import Composition, Limits, Related, Sampler
from alfa.data.sources import SOURCES
from alfa.errors import ConfigError, DataError
from alfa.types import Count, Episode, PositiveFloat

Names = Annotated[Sequence[str], BeforeValidator(lambda n: [n] if isinstance(n, str) else n)]
"""Names of datasets; a single one needs no list."""

_HALF = (0.5, 0.5, 0.5)


class Varied(ImageTasks):
    """Tasks as Meta-Dataset draws them, with varying numbers of classes and examples.

    Each task comes from one source, drawn at random; `Sampler` draws its classes and examples.

    Args:
        sources: sets of images of one shape.
        weights: how often each source is drawn, relative to the others; all alike by default.
        related: for a source by name and a split, which of its classes go together.
        limits: of the size of tasks.

    Raises:
        ConfigError: the sources do not fit together.

    Example:
        >>> from alfa.data import Strokes, Varied
        >>> tasks = Varied([Strokes(num_classes=60, num_examples=20).images()])
        >>> sizes = [tasks.episode(i, num_tasks=1).support_x.shape[1] for i in range(3)]
        >>> sizes
        [139, 206, 129]
    """

    varies = True

    def __init__(
        self,
        sources: Sequence[ImageSet],
        *,
        weights: Sequence[float] | None = None,
        related: Mapping[tuple[str, Split], Related] | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        if not sources:
            raise ConfigError("there is no source of tasks; name at least one.")
        # NaN is not above 0, and a sum of finite numbers may be infinite.
        if weights is not None and not (
            len(weights) == len(sources)
            and all(weight > 0 for weight in weights)
            and math.isfinite(sum(weights))
        ):
            raise ConfigError(
                f"`weights` is {list(weights)}, but must be a finite number above 0 for each of "
                f"{len(sources)} sources."
            )
        self.sources, self.limits = tuple(sources), limits
        self.related = dict(related or {})
        first = self.sources[0]
        for other in self.sources:
            if _kind(other) != _kind(first):
                raise ConfigError(
                    f"the images of {other.name!r} are {_kind(other)}, but those of "
                    f"{first.name!r} {_kind(first)}; bring them to one shape with `ImageSet.like`."
                )
        self.weights = weights
        shares = np.ones(len(sources)) if weights is None else np.array(weights, dtype=float)
        self._shares = shares / shares.sum()
        self.input_shape, self.num_outputs = first.shape, limits.max_way
        self._samplers: dict[Split, list[Sampler]] = {}

    def source_digest(self, source: ImageSet) -> str:
        """The digest of a source, and what it was made from if that decides about its tasks."""
        made_from = source.source if self._is_related(source) else ""
        return f"{source.digest}+{made_from}" if made_from else source.digest

    def names_digest(self, split: Split) -> str:
        # What a source was made from decides which of its classes come together.
        made_from = [_source_of(source) for source in self.sources if self._is_related(source)]
        return " ".join([super().names_digest(split), *made_from])

    def _is_related(self, source: ImageSet) -> bool:
        return any(name == source.name for name, _ in self.related)

    def like(self, signature: Signature) -> Varied:
        shape, mean, std = signature.input_shape, signature.mean, signature.std
        sources = [source.like(shape, mean, std) for source in self.sources]
        return Varied(sources, weights=self.weights, related=self.related, limits=self.limits)

    def check(self, *splits: Split) -> None:
        """Make sure that tasks of these splits can be drawn from every source.

        Raises:
            DataError: says for every source and split what is missing, and names every class that
                has too few images.
        """
        faults = [
            (source, split, fault)
            for source in self.sources
            for split in splits
            if (fault := self._fault(source, split))
        ]
        if faults:
            why = "; ".join(f"{source.name} {fault}" for source, _, fault in faults)
            # Sources for testing only lack no images.
            lacking = [s.name for s, split, _ in faults if not _is_for_testing_only(s, split)]
            them = "them" if len(lacking) == len(faults) else ", ".join(dict.fromkeys(lacking))
            advice = f", or prepare {them} anew with more images" if lacking else ""
            raise DataError(f"there can be no such tasks: {why}; leave out these sources{advice}.")

    def _fault(self, source: ImageSet, split: Split) -> str:
        if split not in source.splits:
            return _why_absent(source, split)
        classes = source.splits[split]
        few = [name for name, count in zip(classes.names, classes.count, strict=True) if count < 2]
        if few:
            return (
                f"has {split} classes of a single image, which cannot be both support and query: "
                f"{', '.join(few)}"
            )
        try:
            self._sampler(source, split, classes)
        except ConfigError as error:
            return f"has too few {split} classes: {str(error).rstrip('.')}"
        return ""

    def _sampler(self, source: ImageSet, split: Split, classes: Classes) -> Sampler:
        related = self.related.get((source.name, split))
        return Sampler(classes.count, related=related, limits=self.limits)

    def _drawn(
        self, index: int, split: Split, seed: int
    ) -> tuple[ImageSet, Composition, list[np.ndarray]]:
        """A task's source, its composition, and the numbers of the images of each class."""
        if split not in self._samplers:
            self.check(split)
            self._samplers[split] = [
                self._sampler(source, split, source.splits[split]) for source in self.sources
            ]
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
    ) -> tuple[ImageSet, Composition]:
        """The source and the composition of a task."""
        source, drawn, _ = self._drawn(index, split, seed)
        return source, drawn

    def episode(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> Episode:
        """Tasks `first`, `first` + 1, ... of a split, as one stack.

        Raises:
            ConfigError: they are not of one size; `groups` takes any.
        """
        groups = self.groups(first, num_tasks=num_tasks, split=split, seed=seed)
        if len(groups) > 1:
            raise ConfigError(
                f"{num_tasks} tasks are of {len(groups)} different sizes, and cannot be one stack; "
                "take them one by one, or by `groups`."
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
        return Episode(
            source.normalised(source.take(support)).unsqueeze(0),
            torch.from_numpy(labels.repeat(drawn.num_support)).unsqueeze(0),
            source.normalised(source.take(query)).unsqueeze(0),
            torch.from_numpy(labels.repeat(drawn.num_query)).unsqueeze(0),
        )

    def largest(self, num_tasks: int) -> Episode:
        """Tasks of the largest possible size; their images are zeros."""
        limits = self.limits
        most = [
            (min(limits.max_way, len(classes)), int(classes.count.max()))
            for source in self.sources
            for classes in source.splits.values()
        ]
        way, count = max(way for way, _ in most), max(count for _, count in most)
        num_query = max(1, min(limits.max_query, count // 2))
        size = min(limits.max_support, way * min(limits.max_support_per_class, count))
        labels = torch.arange(way)
        # The first classes have one example more, to reach the limit exactly.
        num_support = size // way + (labels < size % way).long()
        support_y = labels.repeat_interleave(num_support).repeat(num_tasks, 1)
        query_y = labels.repeat_interleave(num_query).repeat(num_tasks, 1)
        support_x, query_x = (
            torch.zeros(1, y.shape[1], *self.input_shape).expand(num_tasks, *[-1] * 4)
            for y in (support_y, query_y)
        )
        return Episode(support_x, support_y, query_x, query_y)


@register_tasks("meta-dataset")
class MetaDataset(Varied):
    """Tasks from prepared datasets, drawn as Meta-Dataset does.

    Images are brought to one size and three channels, and normalised by 0.5, to -1 and 1.

    Args:
        dataset: the name of a prepared dataset, or of several to draw from, such as
            ``["md-omniglot", "md-flower"]``.
        weights: how often each is drawn, relative to the others; all alike by default.
        size: the side of the images that a model sees.
        stored_size: in which they were prepared; by default `size`, or the only one.
        min_way: classes of a task at least.
        max_way: and at most.
        max_query: query images of a class at most.
        max_support: support images of a task at most.

    Raises:
        DataError: a dataset is not prepared.
    """

    @classmethod
    def dataset_overrides(cls, dataset: str, size: int | None) -> list[str]:
        prepared = "none" if size is None else size
        name = json.dumps(dataset, ensure_ascii=False)
        one = [f"tasks.dataset=[{name}]", "tasks.weights=none"]
        return [*one, f"tasks.stored_size={prepared}"]

    def __init__(
        self,
        *,
        dataset: Names = ("md-ilsvrc",),
        weights: Sequence[PositiveFloat] | None = None,
        size: Count = 84,
        stored_size: Count | None = None,
        min_way: Count = 5,
        max_way: Count = 50,
        max_query: Count = 10,
        max_support: Count = 500,
    ) -> None:
        if len(set(dataset)) < len(dataset):
            raise ConfigError(f"`dataset` is {list(dataset)}, but each may be named once only.")
        limits = Limits(min_way, max_way, max_query, max_support)
        known = prepared()
        sizes = [stored_size or (size if size in known.get(n, []) else None) for n in dataset]
        opened = [open_images(n, size=side) for n, side in zip(dataset, sizes, strict=True)]
        related = {place: found for images in opened for place, found in related_in(images).items()}
        sources = [images.like((3, size, size), _HALF, _HALF) for images in opened]
        super().__init__(sources, weights=weights, related=related, limits=limits)


def _kind(images: ImageSet) -> str:
    """Equal for all sources."""
    return f"{list(images.shape)}, normalised by {list(images.mean)} and {list(images.std)}"


def _source_of(images: ImageSet) -> str:
    """The dataset that images were prepared from, whatever their own name."""
    return images.source or images.name


def _published(images: ImageSet) -> Mapping[Split, tuple[int, int | None]]:
    name = _source_of(images)
    return SOURCES.get(name).published if name in SOURCES else {}


def _is_for_testing_only(images: ImageSet, split: Split) -> bool:
    published = _published(images)
    return bool(published) and not {"train", split} & set(published)


def _why_absent(images: ImageSet, split: Split) -> str:
    """Why a source has no classes of a split."""
    if _is_for_testing_only(images, split):
        return f"is for testing only: it has no {split} classes"
    published = _published(images)
    if split not in published:
        return f"has no {split} classes"
    return (
        f"has no {split} classes: none of the {published[split][0]} that the published split has "
        "was found when it was prepared"
    )


def related_in(images: ImageSet) -> dict[tuple[str, Split], Related]:
    """Which classes of a dataset go together in a task, by its name and split."""
    found = {
        (images.name, split): related_classes(_source_of(images), split, classes.names)
        for split, classes in images.splits.items()
    }
    return {place: related for place, related in found.items() if related is not None}


def related_classes(dataset: str, split: Split, names: Sequence[str]) -> Related | None:
    """Which classes of a dataset go together in a task; None for any."""
    return SOURCES.get(dataset)().related_classes(split, names) if dataset in SOURCES else None
