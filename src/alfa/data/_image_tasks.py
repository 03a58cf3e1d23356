"""The common base of tasks of images."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import replace

from alfa.data._base import Signature, Split, Tasks
from alfa.data._features import AnyImages, FeatureSet
from alfa.data._store import Store


class ImageTasks(Tasks):
    """Tasks whose inputs come from `sources`, image sets of one shape and normalization."""

    loss = "cross_entropy"
    sources: Sequence[AnyImages]

    def signature(self) -> Signature:
        first = self.sources[0]
        return replace(
            super().signature(),
            mean=tuple(first.mean),
            std=tuple(first.std),
            data=" ".join(map(self.source_digest, self.sources)).strip(),
            backbone=getattr(first, "backbone", ""),
        )

    @abc.abstractmethod
    def with_photos(self) -> ImageTasks:
        """Return the same tasks with images in place of their features."""

    def source_digest(self, source: AnyImages) -> str:
        """Return a digest of everything prepared that determines the tasks of a source."""
        return source.digest

    def stamp(self) -> str:
        return " ".join(store.stamp for store in self._stores())

    def names_digest(self, split: Split) -> str:
        return " ".join(store.names_digest(split) for store in self._stores())

    def verify(self) -> None:
        for store in self._stores():
            store.check_pixels()

    def _stores(self) -> list[Store]:
        return [source.store for source in self.sources if source.store is not None]

    def prepare(
        self, split: Split, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        sources = [s for s in self.sources if isinstance(s, FeatureSet) and split in s.splits]
        total = sum(int(source.splits[split].count.sum()) for source in sources)
        done = 0

        def on_images(number: int, _: int) -> None:
            on_progress(done + number, total)

        for source in sources:
            source.prepare(split, on_images)
            done += int(source.splits[split].count.sum())
