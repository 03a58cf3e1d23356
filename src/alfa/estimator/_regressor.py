"""A scikit-learn regressor that learns a curve from a few points."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from alfa.errors import ConfigError
from alfa.estimator._base import FewShotEstimator


class FewShotRegressor(RegressorMixin, FewShotEstimator):  # type: ignore[misc]
    """Fits a function to a few points; `fit` is the inner loop of a run.

    It takes as many features and outputs as the run was trained on, and no others. Scikit-learn's
    `check_estimator` tries several numbers of features, so that no run can pass all of it; what
    does not depend on that number does.

    Args:
        run: a run folder that `alfa train` made, of regression.
        num_steps: inner steps; by default those of the run's own test.
        checkpoint: ``"best"``, ``"last"``, or ``"ensemble"`` for the mean of the best models.
        device: where to compute.

    Attributes:
        model_: the adapted model, an ordinary `torch.nn.Module`.
        support_losses_: before every inner step, and after the last, ``[step + 1]``.
        rates_: ``layers``, the names of the adapted layers; ``alpha`` and ``beta``, the rates that
            the rule used, ``[step, layer]``.
        num_steps_: inner steps taken.

    Example:
        >>> import tempfile
        >>> from alfa import FewShotRegressor
        >>> from alfa.testing import small_run
        >>> run = small_run(tempfile.mkdtemp(), kind="curves")
        >>> reg = FewShotRegressor(run).fit([[-1.0], [0.0], [2.0]], [0.2, 0.9, -0.4])
        >>> reg.predict([[1.0], [1.5]]).shape
        (2,)
    """

    def __init__(
        self,
        run: Any = None,
        *,
        num_steps: int | None = None,
        checkpoint: str = "best",
        device: str = "cpu",
    ) -> None:
        self.run = run
        self.num_steps = num_steps
        self.checkpoint = checkpoint
        self.device = device

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 - scikit-learn's name
        """Adapt the run's model to points.

        Args:
            X: inputs, ``[point, feature]``, as many features as the run was trained on.
            y: targets, ``[point]`` or ``[point, output]``.

        Raises:
            AlfaError: the run cannot be used, or was trained on other inputs or outputs.
        """
        run = self._open_run()
        signature = run.signature
        if signature.loss != "mse":
            raise ConfigError(
                f"{self.run} was trained on classification, but FewShotRegressor needs a run of "
                "regression; use FewShotClassifier, or another run."
            )
        with self._all_or_nothing():
            X, y = validate_data(self, X, y, multi_output=True, y_numeric=True)  # noqa: N806
            targets = np.asarray(y, np.float32).reshape(len(y), -1)
            sizes = (
                ("feature(s)", X.shape[1], math.prod(signature.input_shape)),
                ("output(s)", targets.shape[1], signature.num_outputs),
            )
            faults = [
                f"{got} {what}, but {self.run} was trained on {wanted}"
                for what, got, wanted in sizes
                if got != wanted
            ]
            if faults:
                raise ConfigError(
                    f"there are {'; and '.join(faults)}; bring the data to that shape."
                )
            self._shape, self._flat_targets = tuple(signature.input_shape), np.ndim(y) == 1
            learners = run.learners(self.checkpoint, device=self.device)
            self._fit(run, learners, self._inputs(X), torch.from_numpy(targets))
        return self

    def _inputs(self, X: np.ndarray) -> Tensor:  # noqa: N803
        return torch.from_numpy(np.asarray(X, np.float32)).reshape(len(X), *self._shape)

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The value at each input, in the shape of the targets that were fitted.

        Args:
            X: inputs, ``[point, feature]``.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)  # noqa: N806
        found = self._outputs(self._inputs(X)).double().numpy()
        return np.asarray(found[:, 0] if self._flat_targets else found)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        # It learns what belongs to the family of curves it was trained on, and nothing else.
        tags.regressor_tags.poor_score = True
        return tags
