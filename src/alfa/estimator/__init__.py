"""scikit-learn estimators whose `fit` adapts a trained run to a few examples."""

from alfa.estimator._classifier import FewShotClassifier
from alfa.estimator._images import check_normalized
from alfa.estimator._regressor import FewShotRegressor

__all__ = ["check_normalized", "FewShotClassifier", "FewShotRegressor"]
