"""The best epochs of a training, by validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from alfa.train.evaluate import Evaluation


@dataclass(frozen=True)
class Epoch:
    """How a model did in validation.

    Attributes:
        iteration: after which it was validated.
        score: what epochs are compared by, the larger the better.
        loss: the mean query loss.
        accuracy: None for regression.
    """

    iteration: int
    score: float
    loss: float
    accuracy: float | None = None


@dataclass(frozen=True)
class Best:
    """The best epochs so far, the best first; of equals the earlier one.

    Attributes:
        epochs: as many as are kept, or fewer.
    """

    epochs: tuple[Epoch, ...] = ()

    @property
    def iterations(self) -> list[int]:
        return [epoch.iteration for epoch in self.epochs]

    def with_epoch(
        self, iteration: int, found: Evaluation, *, num_members: int
    ) -> tuple[Best, bool]:
        """The best with one more epoch, and whether that one is the first of them."""
        new = Epoch(iteration, found.score, found.loss, found.accuracy)
        # Sorting is stable, so of equals the earlier one stays ahead.
        ordered = sorted([*self.epochs, new], key=lambda epoch: -epoch.score)
        return Best(tuple(ordered[:num_members])), ordered[0] is new

    def as_progress(self) -> dict[str, Any]:
        return {"best": [asdict(epoch) for epoch in self.epochs]}

    @classmethod
    def from_progress(cls, progress: Mapping[str, Any]) -> Best:
        """As a checkpoint kept it; older ones know a single loss."""
        if "best" in progress:
            return cls(tuple(Epoch(**epoch) for epoch in progress["best"]))
        loss = progress["best_loss"]
        if loss == float("inf"):
            return cls()
        return cls((Epoch(progress["best_iteration"], -loss, loss),))
