"""A scikit-learn classifier for a few images of each class."""

import math
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from alfa.errors import ConfigError, check_choice
from alfa.estimator._base import FewShotEstimator
from alfa.estimator._heads import heads, load_learners
from alfa.estimator._images import (
    ImageReader,
    ValueRange,
    as_collection,
    check_images,
    check_is_batch,
    is_table,
)


class FewShotClassifier(ClassifierMixin, FewShotEstimator):  # type: ignore[misc]
    """A classifier that adapts a trained run to a few images of each class.

    Images may have any size. They may be files, PIL images, arrays ``[height, width]`` or
    ``[height, width, channel]``, a single array of all images, or a table with a row of pixels for
    each image. A row becomes a square image if its length allows, and otherwise a single line; the
    channels of a pixel are adjacent. Put a single image in a list.

    By default predictions are inductive: batch norm uses the statistics of the support set, so each
    image is classified independently. The paper's protocol is transductive: images are normalized
    by the statistics of all images that are predicted together. A custom network that uses a
    batch-norm layer more than once is always transductive, and `fit` warns about it.

    Args:
        run: folder of a trained run.
        head: last layer: ``"trained"``, the layer of the run; or ``"zero"`` or ``"prototype"``, a
            new layer for any number of classes. For a run with a trained last layer, use
            ``"zero"`` with ALFA and ``"prototype"`` with MAML.
        num_steps: number of inner steps; by default the number of test steps of the run.
        checkpoint: ``"best"``, ``"last"``, or ``"ensemble"`` for the mean of the best models.
        transductive: normalize images that are predicted together by their own statistics.
        value_range: values of black and white in arrays other than uint8. By default (0, 1) if the
            support set is in this range, (0, 255) if it is in this range and reaches 50, and
            otherwise its extremes. After a support set of only bytes or files, floating-point
            arrays raise an error.
        device: device for adaptation and predictions.

    Attributes:
        classes_: labels in the order of the columns of `predict_proba`.
        model_: adapted model, an ordinary `torch.nn.Module`.
        support_losses_: support loss before every inner step and after the last, ``[step + 1]``.
        support_accuracy_: accuracy on the support set.
        support_hits_: number of correctly classified support images of each class.
        rates_: ``layers``, the names of the adapted layers; ``alpha`` and ``beta``, the rates of
            the rule, ``[step, layer]``.
        num_steps_: number of inner steps.
        value_range_: values of black and white in arrays other than uint8; None without such
            arrays.
        signature_: signature of the run's tasks: image shape and normalization.

    Examples:
        >>> import tempfile
        >>> from alfa import FewShotClassifier
        >>> from alfa.data import Strokes
        >>> from alfa.testing import small_run
        >>> run = small_run(tempfile.mkdtemp())  # replaces a run from `alfa train`
        >>> images = Strokes(num_classes=3, num_examples=6).images().images[:, 0]
        >>> labels = ["alef"] * 6 + ["bet"] * 6 + ["gimel"] * 6
        >>> clf = FewShotClassifier(run).fit(images, labels)
        >>> clf.predict_proba(images[:2]).shape, clf.rates_["alpha"].shape
        ((2, 3), (5, 10))
    """

    def __init__(
        self,
        run: Any = None,
        *,
        head: str = "trained",
        num_steps: int | None = None,
        checkpoint: str = "best",
        transductive: bool = False,
        value_range: ValueRange | None = None,
        device: str = "cpu",
    ) -> None:
        super().__init__(run, num_steps=num_steps, checkpoint=checkpoint, device=device)
        self.head = head
        self.transductive = transductive
        self.value_range = value_range

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 - scikit-learn's name
        """Adapt the run's model to images and their labels.

        Args:
            X: support set, a few images of each class.
            y: labels: strings, whole numbers, or booleans.

        Raises:
            AlfaError: if an image or the run is invalid, or the last layer of the run has fewer
                outputs than there are classes.
        """
        check_choice("head", self.head, ("trained", *heads()))
        _check_labels_given(y)
        run = self._open_run()
        image_format = check_images(run.signature, self.run)
        with self._all_or_nothing():
            X, y = self._validate(X, y, reset=True)  # noqa: N806
            self.classes_, labels = np.unique(y, return_inverse=True)
            learners = load_learners(
                run,
                checkpoint=self.checkpoint,
                head=self.head,
                num_classes=len(self.classes_),
                device=self.device,
            )
            self._reader = ImageReader.fit(image_format, X, self.value_range)
            self.value_range_, self.signature_ = self._reader.values, run.signature
            x = self._reader.read(X)
            chance_loss = math.log(len(self.classes_)) if len(self.classes_) > 1 else None
            self._fit(
                run,
                learners,
                x,
                torch.from_numpy(labels),
                chance_loss=chance_loss,
                has_new_head=self.head != "trained",
            )
            is_right = self._logits(x).argmax(1).numpy() == labels
            self.support_accuracy_ = float(np.mean(is_right))
            self.support_hits_ = np.bincount(labels[is_right], minlength=len(self.classes_))
        return self

    @property
    def is_inductive(self) -> bool:
        """Whether each image is classified independently."""
        check_is_fitted(self)
        return self._is_inductive_model and not self.transductive

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Predict the label of each image."""
        logits = self._logits(self._read(X)[0])
        return np.asarray(self.classes_[logits.argmax(1).numpy()])

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Predict class probabilities, ``[image, class]``."""
        return np.asarray(self._logits(self._read(X)[0]).double().softmax(1).numpy())

    def predict_log_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Predict the logarithms of class probabilities, ``[image, class]``."""
        return np.asarray(self._logits(self._read(X)[0]).double().log_softmax(1).numpy())

    def accuracies(self, X: Any, y: Any) -> dict[str, float]:  # noqa: N803
        """Return the accuracies ``inductive``, if the model supports it, and ``transductive``.

        The transductive accuracy needs memory for all images at once.
        """
        _check_labels_given(y)
        x, y = self._read(X, y)
        modes = {"inductive": False} if self._is_inductive_model else {}
        found = {}
        for name, transductive in {**modes, "transductive": True}.items():
            logits = self._logits(x, transductive=transductive)
            found[name] = float(np.mean(self.classes_[logits.argmax(1).numpy()] == y))
        return found

    def _read(self, X: Any, y: Any = None) -> tuple[Tensor, Any]:  # noqa: N803
        check_is_fitted(self)
        X, y = self._validate(X, y, reset=False)  # noqa: N806
        return self._reader.read(X), y

    def _logits(self, x: Tensor, *, transductive: bool | None = None) -> Tensor:
        """Return the logits of the fitted classes; a trained head may have more outputs."""
        together = bool(self.transductive) if transductive is None else transductive
        return self._outputs(x, transductive=together)[:, : len(self.classes_)]

    def _validate(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:  # noqa: N803
        """Validate images and labels; scikit-learn validates tables."""
        X = as_collection(X)  # noqa: N806
        if is_table(X):
            if not reset and not hasattr(self, "n_features_in_") and np.ndim(X) == 2:
                raise ConfigError(
                    f"X is a table of shape {list(np.shape(X))}, but the classifier was fitted on "
                    "images; put a single image in a list."
                )
            if y is None:
                return validate_data(self, X, reset=reset), None
            X, y = validate_data(self, X, y, reset=reset)  # noqa: N806
        else:
            check_is_batch(X, None if reset else self._reader.num_axes)
            if reset:
                # Remove the attributes of an earlier fit on a table.
                for name in ("n_features_in_", "feature_names_in_"):
                    self.__dict__.pop(name, None)
        return X, None if y is None else _checked_labels(y, len(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        # The model was trained on images and performs poorly on tables of other numbers.
        tags.classifier_tags.poor_score = True
        return tags


def _check_labels_given(y: Any) -> None:
    if y is None:
        # scikit-learn's checks require this wording.
        raise ConfigError(
            "FewShotClassifier requires y to be passed, but the target y is None; pass a label for "
            "each image."
        )


def _checked_labels(y: Any, num_images: int) -> np.ndarray:
    """Validate labels, including those that scikit-learn would call a regression target."""
    y = column_or_1d(y, warn=True)
    for number, label in enumerate(y if y.dtype.kind == "O" else ()):
        if not isinstance(label, (str, int, np.integer)):
            raise ConfigError(
                f"labels must be strings or whole numbers, got {label!r} for image {number}; use "
                "str(label), or the `name` of a path."
            )
    check_classification_targets(y)
    if len(y) != num_images:
        raise ConfigError(f"X and y must have the same length, got {num_images} and {len(y)}.")
    return np.asarray(y)
