"""Scikit-learn estimators: a trained run, adapted to a user's own few examples by `fit`."""

from alfa.estimator._classifier import FewShotClassifier
from alfa.estimator._images import check_normalized
from alfa.estimator._regressor import FewShotRegressor

__all__ = ["check_normalized", "FewShotClassifier", "FewShotRegressor"]
