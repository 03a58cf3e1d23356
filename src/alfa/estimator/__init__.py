"""scikit-learn estimators whose `fit` adapts a trained run to a few examples."""

from alfa.estimator._classifier import Assessed, FewShotClassifier
from alfa.estimator._images import PreparedImages, check_images
from alfa.estimator._regressor import FewShotRegressor
from alfa.estimator._support import embedding

__all__ = [
    "Assessed",
    "FewShotClassifier",
    "FewShotRegressor",
    "PreparedImages",
    "check_images",
    "embedding",
]
