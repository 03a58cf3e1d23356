"""The support set of a classifier, and its assessment by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.assessment import Folds, HeldOut, cross_validate
from alfa.data import copy_groups, similar_names
from alfa.errors import AlfaWarning, ConfigError
from alfa.estimator._base import MeanOutput

# The number of pairs that a warning lists.
_MOST_LISTED = 3


@dataclass(frozen=True, eq=False)
class Support:
    """The labeled images that a classifier has learned.

    Attributes:
        x: the inputs of the model, ``[example, ...]``.
        grids: the results of `alfa.data.photo_grid`, by which copies are found.
        y: the labels.
    """

    x: Tensor
    grids: np.ndarray
    y: np.ndarray

    def extended(self, other: Support) -> Support:
        """Return the images of both."""
        kinds = {self.y.dtype.kind, other.y.dtype.kind}
        if len(kinds) > 1 and "O" not in kinds:
            raise ConfigError(
                f"the new labels are {other.y.dtype}, but the earlier ones are {self.y.dtype}; "
                "use labels of one type."
            )
        return Support(
            torch.cat([self.x, other.x]),
            np.concatenate([self.grids, other.grids]),
            np.concatenate([self.y, other.y]),
        )

    @property
    def groups(self) -> np.ndarray:
        """A number for each image that its copies share."""
        return copy_groups(self.grids)


def check_options(num_folds: Any, false_alarm_rate: Any) -> None:
    """Raise ConfigError unless the options of the cross-validation are valid."""
    is_number = isinstance(num_folds, (int, np.integer)) and not isinstance(num_folds, bool)
    if not is_number or num_folds < 0 or num_folds == 1:
        raise ConfigError(
            "`num_folds` must be a whole number of at least 2, or 0 for no cross-validation, got "
            f"{num_folds!r}."
        )
    is_number = isinstance(false_alarm_rate, (float, int, np.floating))
    if not is_number or not 0 < false_alarm_rate <= 0.5:
        raise ConfigError(
            f"`false_alarm_rate` must be above 0 and at most 0.5, got {false_alarm_rate!r}."
        )


def warn_of_doubtful_labels(classes: Sequence[Any], labels: np.ndarray, groups: np.ndarray) -> None:
    """Warn about class names that are nearly equal, and about an image in two classes."""
    names = [str(name) for name in classes]
    pairs = [f"{first!r} and {second!r}" for first, second in similar_names(names)]
    if pairs:
        _warn(
            f"some class names are nearly the same: {_listed(pairs)}; use one name if they mean "
            "the same class."
        )
    found: dict[int, set[int]] = {}
    for group, label in zip(groups.tolist(), labels.tolist(), strict=True):
        found.setdefault(group, set()).add(label)
    both = {pair for own in found.values() for pair in combinations(sorted(own), 2)}
    if both:
        pairs = [f"{names[first]!r} and {names[second]!r}" for first, second in sorted(both)]
        _warn(f"the same image is in two classes: {_listed(pairs)}; remove it from one of them.")


def _warn(message: str) -> None:
    # The level of the caller of `fit`.
    warnings.warn(message, AlfaWarning, stacklevel=6)


def _listed(pairs: Sequence[str]) -> str:
    more = len(pairs) - _MOST_LISTED
    return ", ".join(pairs[:_MOST_LISTED]) + (f", and {more} more" if more > 0 else "")


Fit = Callable[[np.ndarray], nn.Module]
"""Function that returns the model that is adapted to the images with these indices."""


def held_out_predictions(
    fit: Fit, outputs: Callable[[nn.Module], Tensor], x: Tensor, folds: Folds
) -> tuple[HeldOut, np.ndarray]:
    """Predict each image by models that did not train on it.

    Args:
        fit: adapts a model to a part of the support set.
        outputs: the outputs of a model for the whole support set.
        x: the inputs of the support set.
        folds: the folds.

    Returns:
        The predictions, and the familiarity of each held-out image.
    """
    familiarities: list[np.ndarray] = []

    def fit_predict(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        model = fit(train)
        with torch.no_grad():
            z = embedding(model, x).cpu()
        means = class_means(z[torch.from_numpy(train)], folds.labels[train])
        familiarities.append(familiarity(z, means))
        return np.asarray(outputs(model).double().numpy()[test])

    held_out = cross_validate(fit_predict, folds)
    # The first model trained on all images.
    rows = [own[indices] for own, indices in zip(familiarities[1:], folds.held_out, strict=True)]
    return held_out, np.concatenate(rows) if rows else np.empty(0)


def embedding(model: nn.Module, x: Tensor) -> Tensor:
    """Return the inputs of an adapted model's last layer with norm 1, ``[example, feature]``.

    A model without a sequence of layers has the embedding x.
    """
    if isinstance(model, MeanOutput):
        return _unit(torch.cat([embedding(part, x) for part in model.models], 1))
    example = next(iter([*model.parameters(), *model.buffers()]))
    z = x.to(example.device, example.dtype)
    if isinstance(model, nn.Sequential) and len(model) > 1:
        z = nn.Sequential(*list(model)[:-1])(z)
    return _unit(z.flatten(1).float())


def class_means(z: Tensor, labels: np.ndarray) -> Tensor:
    """Return the mean embedding of each class with norm 1, ``[class, feature]``."""
    y = torch.from_numpy(labels)
    return _unit(torch.stack([z[y == label].mean(0) for label in range(int(y.max()) + 1)]))


def familiarity(z: Tensor, means: Tensor) -> np.ndarray:
    """Return the largest cosine similarity of each embedding to the mean of a class.

    It separates images of other classes better than probabilities do, and unlike the similarity to
    the nearest image, it hardly changes if a fold has one image less.
    """
    return np.asarray((z @ means.mT).amax(1).numpy())


def _unit(z: Tensor) -> Tensor:
    return F.normalize(z, dim=1)
