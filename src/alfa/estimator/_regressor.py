"""A scikit-learn regressor for a few points of a function."""

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
    """A regressor that adapts a trained run to a few points of a function.

    The numbers of features and outputs must match the run, so those checks of scikit-learn's
    `check_estimator` that try other numbers fail.

    Args:
        run: folder of a trained regression run.
        num_steps: number of inner steps; by default the number of test steps of the run.
        checkpoint: ``"best"``, ``"last"``, or ``"ensemble"`` for the mean of the best models.
        device: device for adaptation and predictions.

    Attributes:
        model_: adapted model, an ordinary `torch.nn.Module`.
        support_losses_: support loss before every inner step and after the last, ``[step + 1]``.
        rates_: ``layers``, the names of the adapted layers; ``alpha`` and ``beta``, the rates of
            the rule, ``[step, layer]``.
        num_steps_: number of inner steps.

    Examples:
        >>> import tempfile
        >>> from alfa import FewShotRegressor
        >>> from alfa.testing import small_run
        >>> run = small_run(tempfile.mkdtemp(), kind="curves")
        >>> reg = FewShotRegressor(run).fit([[-1.0], [0.0], [2.0]], [0.2, 0.9, -0.4])
        >>> reg.predict([[1.0], [1.5]]).shape
        (2,)
    """

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 - scikit-learn's name
        """Adapt the run's model to points.

        Args:
            X: inputs, ``[point, feature]``, with as many features as the run's inputs.
            y: targets, ``[point]`` or ``[point, output]``.

        Raises:
            AlfaError: if the run is invalid, or has other numbers of features or outputs.
        """
        with self._all_or_nothing():
            run = self._open_run()
            signature = run.signature
            if signature.loss != "mse":
                raise ConfigError(
                    f"{self.run} was not trained on regression; use FewShotClassifier or another "
                    "run."
                )
            X, y = validate_data(self, X, y, multi_output=True, y_numeric=True)  # noqa: N806
            targets = np.asarray(y, np.float32).reshape(len(y), -1)
            num_features = math.prod(signature.input_shape)
            if (X.shape[1], targets.shape[1]) != (num_features, signature.num_outputs):
                raise ConfigError(
                    f"{self.run} was trained on {num_features} feature(s) and "
                    f"{signature.num_outputs} output(s), got {X.shape[1]} and {targets.shape[1]}."
                )
            self._shape, self._flat_targets = tuple(signature.input_shape), np.ndim(y) == 1
            learners = run.learners(self.checkpoint, device=self.device)
            self._fit(run, learners, self._inputs(X), torch.from_numpy(targets))
        return self

    def _inputs(self, X: np.ndarray) -> Tensor:  # noqa: N803
        return torch.from_numpy(np.asarray(X, np.float32)).reshape(len(X), *self._shape)

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Predict the value at each input, in the shape of the fitted targets."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)  # noqa: N806
        found = self._outputs(self._inputs(X)).double().numpy()
        return np.asarray(found[:, 0] if self._flat_targets else found)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        # The model was trained on one family of functions and performs poorly on others.
        tags.regressor_tags.poor_score = True
        return tags
