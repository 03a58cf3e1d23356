"""A scikit-learn classifier for a few images of each class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn

from alfa.assessment import (
    AccuracyEstimate,
    Calibration,
    Folds,
    HeldOut,
    Rejection,
    Selection,
    label_next,
    select,
    stratified_folds,
)
from alfa.errors import ConfigError, check_choice
from alfa.estimator._base import FewShotEstimator, mean_of
from alfa.estimator._heads import heads, load_learners, usable_heads
from alfa.estimator._images import (
    ImageReader,
    PreparedImages,
    ValueRange,
    as_collection,
    check_images,
    check_is_batch,
    is_table,
)
from alfa.estimator._support import (
    Support,
    check_options,
    class_means,
    embedding,
    familiarity,
    held_out_predictions,
    warn_of_doubtful_labels,
)
from alfa.learner import Learner
from alfa.runs import Run

# The name of the model that classifies photos if there is no run.
DEFAULT_MODEL = "photos"


class FewShotClassifier(ClassifierMixin, FewShotEstimator):  # type: ignore[misc]
    """A classifier that adapts a trained run to a few images of each class.

    Images may have any size. They may be files, PIL images, arrays ``[height, width]`` or
    ``[height, width, channel]``, a single array of all images, or a table with a row of pixels for
    each image. A row becomes a square image if its length allows, and otherwise a single line; the
    channels of a pixel are adjacent. Put a single image in a list. `PreparedImages` are images that
    were converted to inputs of the model before.

    By default predictions are inductive: batch norm uses the statistics of the support set, so each
    image is classified independently. The paper's protocol is transductive: images are normalized
    by the statistics of all images that are predicted together. A custom network that uses a
    batch-norm layer more than once is always transductive, and `fit` warns about it.

    Args:
        run: `Run`, folder of a trained run, or name of a pretrained model; by default
            ``"photos"``, a classifier on the features of a network that was trained on ImageNet.
        head: last layer: ``"trained"``, the layer of the run; ``"zero"`` or ``"prototype"``, a new
            layer for any number of classes; or ``"auto"``, the best of these on held-out images of
            the support set. For a run with a trained last layer, use ``"zero"`` with ALFA and
            ``"prototype"`` with MAML.
        num_steps: number of inner steps; by default the number of test steps of the run.
        checkpoint: ``"best"``, ``"last"``, or ``"ensemble"`` for the mean of the best models.
        transductive: normalize images that are predicted together by their own statistics.
        value_range: values of black and white in arrays other than uint8. By default (0, 1) if the
            support set is in this range, (0, 255) if it is in this range and reaches 50, and
            otherwise its extremes. After a support set of only bytes or files, floating-point
            arrays raise an error.
        num_folds: number of folds of the cross-validation; 0 omits it, and with it the estimated
            accuracy, the calibration, and the rejection of images.
        false_alarm_rate: share of the images of the classes that `is_none` rejects.
        device: device for adaptation and predictions.

    Attributes:
        classes_: labels in the order of the columns of `predict_proba`.
        model_: adapted model, an ordinary `torch.nn.Module`.
        support_losses_: support loss before every inner step and after the last, ``[step + 1]``.
        accuracy_: estimated accuracy on new images of the same kind with its 95 % interval, from
            held-out images of the support set.
        held_out_: the predictions of the cross-validation, by which the accuracy is estimated.
        calibration_: the temperature, and the calibration error on held-out images.
        rejection_: the threshold of `is_none`.
        class_means_: the mean embedding of each class with norm 1.
        head_: the last layer, which ``head="auto"`` chooses.
        head_reason_: the reason for this choice.
        rates_: ``layers``, the names of the adapted layers; ``alpha`` and ``beta``, the rates of
            the rule, ``[step, layer]``.
        num_steps_: number of inner steps.
        value_range_: values of black and white in arrays other than uint8; None without such
            arrays.
        signature_: signature of the run's tasks: image shape and normalization.
        image_format_: how images become inputs of the model.

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
        num_folds: int = 5,
        false_alarm_rate: float = 0.05,
        device: str = "cpu",
    ) -> None:
        super().__init__(run, num_steps=num_steps, checkpoint=checkpoint, device=device)
        self.head = head
        self.transductive = transductive
        self.value_range = value_range
        self.num_folds = num_folds
        self.false_alarm_rate = false_alarm_rate

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 - scikit-learn's name
        """Adapt the run's model to images and their labels, and cross-validate it.

        Args:
            X: support set, a few images of each class.
            y: labels: strings, whole numbers, or booleans.

        Raises:
            AlfaError: if an image or the run is invalid, or the last layer of the run has fewer
                outputs than there are classes.
        """
        return self._learn(X, y, before=None)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:  # noqa: N803
        """Add images and their labels to those of earlier calls, and adapt to all of them.

        Args:
            X: more images, possibly of new classes.
            y: their labels.
            classes: the labels that `y` may contain; None for any.

        Raises:
            AlfaError: as for `fit`, or if a label is not in `classes`.
        """
        if classes is not None and y is not None:
            allowed = set(np.asarray(classes).tolist())
            for label in np.asarray(y).tolist():
                if label not in allowed:
                    raise ConfigError(
                        f"y contains the label {label!r}, which is not in `classes`; add it, or "
                        "omit `classes`."
                    )
        return self._learn(X, y, before=self._support if hasattr(self, "_support") else None)

    def _learn(self, X: Any, y: Any, before: Support | None) -> Self:  # noqa: N803
        """Fit to the support set of earlier calls, if any, and to new images."""
        check_choice("head", self.head, ("auto", "trained", *heads()))
        check_options(self.num_folds, self.false_alarm_rate)
        _check_labels_given(y)
        with self._all_or_nothing():
            run = self._open_run()
            image_format = check_images(run.signature, self._run_or_default())
            self.signature_, self.image_format_ = run.signature, image_format
            X, y = self._validate(X, y, reset=before is None)  # noqa: N806
            if before is None:
                self._reader = ImageReader.fit(image_format, X, self.value_range)
            new = Support(*self._reader.read_support(X), y)
            self._support = new if before is None else before.extended(new)
            self.value_range_ = self._reader.values
            self.classes_, labels = np.unique(self._support.y, return_inverse=True)
            self._fit_and_assess(run, labels)
        return self

    def _run_or_default(self) -> Any:
        return DEFAULT_MODEL if self.run is None else self.run

    def _fit_and_assess(self, run: Run, labels: np.ndarray) -> None:
        """Choose a head, adapt to the support set, and cross-validate the result."""
        num_classes, x, groups = len(self.classes_), self._support.x, self._support.groups
        warn_of_doubtful_labels(self.classes_.tolist(), labels, groups)
        options: dict[str, Any] = {
            "checkpoint": self.checkpoint,
            "num_classes": num_classes,
            "device": self.device,
        }
        names = usable_heads(run, **options) if self.head == "auto" else [self.head]
        learners = {name: load_learners(run, head=name, **options) for name in names}
        found: dict[str, tuple[HeldOut, np.ndarray]] = {}
        if self.num_folds and num_classes > 1:
            # Inner steps take too long to repeat the cross-validation.
            num_repeats = 1 if self.num_steps_ else None
            folds = stratified_folds(
                labels, num_folds=self.num_folds, num_repeats=num_repeats, groups=groups
            )
            found = {name: self._held_out(run, learners[name], labels, folds) for name in names}
        chosen = Selection(names[0], "", {})
        if len(found) > 1:
            chosen = select({name: held_out for name, (held_out, _) in found.items()})
        self.head_, self.head_reason_ = chosen.name, chosen.reason
        self._fit(
            run,
            learners[self.head_],
            x,
            torch.from_numpy(labels),
            chance_loss=math.log(num_classes) if num_classes > 1 else None,
            has_new_head=self.head_ != "trained",
            # fit, _learn, _fit_and_assess, _fit
            stacklevel=6,
        )
        self._known = self._embedding(x)
        self.class_means_ = class_means(self._known, labels)
        self.held_out_ = self.accuracy_ = self.calibration_ = self.rejection_ = None
        if found:
            held_out, scores = found[self.head_]
            self.held_out_ = held_out
            self.accuracy_ = AccuracyEstimate.of(held_out)
            self.calibration_ = Calibration.of(held_out)
            rate = float(self.false_alarm_rate)
            self.rejection_ = Rejection.of(scores, held_out, false_alarm_rate=rate)

    def _held_out(
        self, run: Run, learners: Sequence[Learner], labels: np.ndarray, folds: Folds
    ) -> tuple[HeldOut, np.ndarray]:
        """Predict each image of the support set by models that did not train on it."""
        x, y, num_classes = self._support.x, torch.from_numpy(labels), len(self.classes_)

        def fit(train: np.ndarray) -> nn.Module:
            own = x[train], y[train]
            return mean_of([self._adapt(run, learner, *own).model for learner in learners])

        def outputs(model: nn.Module) -> Tensor:
            together = bool(self.transductive)
            return self._outputs_of(model, x, transductive=together, alone=False)[:, :num_classes]

        return held_out_predictions(fit, outputs, x, folds)

    @property
    def temperature_(self) -> float:
        """The number that divides the logits before the softmax."""
        check_is_fitted(self)
        return 1.0 if self.calibration_ is None else self.calibration_.temperature

    @property
    def threshold_(self) -> float:
        """The familiarity below which an image belongs to none of the classes."""
        check_is_fitted(self)
        return -math.inf if self.rejection_ is None else self.rejection_.threshold

    @property
    def is_inductive(self) -> bool:
        """Whether each image is classified independently."""
        check_is_fitted(self)
        return self._is_inductive_model and not (self.transductive and self._has_batch_norm)

    def predict(self, X: Any, *, none_label: Any = None) -> np.ndarray:  # noqa: N803
        """Predict the label of each image.

        Args:
            X: images.
            none_label: the label of images that `is_none` finds, such as ``"none of these"``; None
                to predict the most probable class of every image.
        """
        if none_label is not None:
            found = self.assess(X)
            return np.where(found.is_none, np.array(none_label, object), found.labels)
        logits = self._logits(self._read(X)[0])
        return np.asarray(self.classes_[logits.argmax(1).numpy()])

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Predict calibrated class probabilities, ``[image, class]``."""
        return self._probabilities(self._logits(self._read(X)[0]))

    def _probabilities(self, logits: Tensor) -> np.ndarray:
        return np.asarray((logits.double() / self.temperature_).softmax(1).numpy())

    def predict_log_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Predict the logarithms of calibrated class probabilities, ``[image, class]``."""
        logits = self._logits(self._read(X)[0]).double()
        return np.asarray((logits / self.temperature_).log_softmax(1).numpy())

    def is_none(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return whether each image belongs to none of the classes, because it is unfamiliar.

        The threshold follows from the support set: a share of `false_alarm_rate` of new images of
        the classes is rejected. Without a cross-validation, no image is.
        """
        return self.assess(X).is_none

    def assess(self, X: Any) -> Assessed:  # noqa: N803
        """Predict the label, the probabilities, and the familiarity of each image."""
        x, _ = self._read(X)
        logits = self._logits(x)
        scores = familiarity(self._embedding(x), self.class_means_)
        labels = np.asarray(self.classes_[logits.argmax(1).numpy()])
        probabilities = self._probabilities(logits)
        return Assessed(labels, probabilities, scores, scores < self.threshold_)

    def label_next(self, X: Any, *, num_images: int = 10) -> np.ndarray:  # noqa: N803
        """Return the indices of the images whose labels would help most, the best first.

        Args:
            X: unlabeled images.
            num_images: the number of indices.
        """
        x, _ = self._read(X)
        if len(self.classes_) < 2:
            raise ConfigError("`label_next` needs a classifier of at least 2 classes, got 1.")
        probabilities = self._probabilities(self._logits(x))
        return label_next(probabilities, self._embedding(x), self._known, num_photos=num_images)

    def _embedding(self, x: Tensor) -> Tensor:
        with torch.no_grad(), self._fitted_mode():
            return embedding(self.model_, x).cpu()

    def accuracies(self, X: Any, y: Any) -> dict[str, float]:  # noqa: N803
        """Return the accuracies ``inductive`` and ``transductive``, as far as the model has them.

        The transductive accuracy needs memory for all images at once.
        """
        _check_labels_given(y)
        x, y = self._read(X, y)
        modes = {"inductive": False} if self._is_inductive_model else {}
        if self._has_batch_norm or not self._is_inductive_model:
            modes["transductive"] = True
        found = {}
        for name, transductive in modes.items():
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
        if isinstance(X, PreparedImages):
            if X.format != self.image_format_:
                raise ConfigError("X was prepared for another model; prepare the images again.")
            return X, None if y is None else _checked_labels(y, len(X))
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


@dataclass(frozen=True, eq=False)
class Assessed:
    """The predictions for some images.

    Attributes:
        labels: the most probable class of each image.
        probabilities: calibrated class probabilities, ``[image, class]``.
        familiarity: the largest cosine similarity to the mean embedding of a class.
        is_none: whether the image is less familiar than the threshold.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    familiarity: np.ndarray
    is_none: np.ndarray


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
