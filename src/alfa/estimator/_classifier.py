"""A scikit-learn classifier that learns from a few images of each class."""

from __future__ import annotations

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
from alfa.estimator._heads import HEADS, load_learners
from alfa.estimator._images import (
    ImageReader,
    ValueRange,
    as_collection,
    check_is_batch,
    check_normalized,
    is_table,
    num_axes,
    value_range,
)


class FewShotClassifier(ClassifierMixin, FewShotEstimator):  # type: ignore[misc]
    """Classifies images after a few examples of each class; `fit` is the inner loop of a run.

    Images may be files, PIL images or arrays, of any size: ``[height, width]`` or ``[height,
    width, channel]``, one array of all of them, or a table with a row of pixels for each, as
    scikit-learn has it: square images where the number of columns allows, otherwise one line, and
    colours pixel by pixel, red, green, blue, red and so on. A single image is a list of one.

    By default what is said of one image does not depend on the others that are predicted with it:
    batch norm uses the statistics of the support set. The paper's protocol is transductive,
    where queries are normalised together; `transductive` switches to it, and `accuracies` gives
    both. A network of your own that uses a layer of batch norm more than once is always
    transductive, which a warning says.

    Args:
        run: a run folder that `alfa train` made.
        head: the last layer: ``"trained"``, as the run has it; ``"zero"`` or ``"prototype"``, made
            anew for any number of classes. Where the run was trained with a layer of its own,
            ``"zero"`` suits ALFA, and ``"prototype"`` MAML.
        num_steps: inner steps; by default those of the run's own test.
        checkpoint: ``"best"``, ``"last"``, or ``"ensemble"`` for the mean of the best models.
        transductive: whether images that are predicted together are normalised together.
        value_range: the values of black and white in arrays that are not bytes; by default from
            0 to 1 if all of the support set lies there, from 0 to 255 if it lies there and goes
            beyond 50, and its least and greatest otherwise.
            After a support set of bytes or files alone, arrays of floating-point numbers are
            refused.
        device: where to compute.

    Attributes:
        classes_: the labels, in the order of `predict_proba`'s columns.
        model_: the adapted model, an ordinary `torch.nn.Module`.
        support_losses_: before every inner step, and after the last, ``[step + 1]``.
        support_accuracy_: the part of the support set that is classified right.
        support_hits_: how many of it are, of each class.
        rates_: ``layers``, the names of the adapted layers; ``alpha`` and ``beta``, the rates that
            the rule used, ``[step, layer]``.
        num_steps_: inner steps taken.
        value_range_: black and white in arrays that are not bytes; None if there were none.
        signature_: what the model is given: the shape of images, and what they are normalised by.

    Example:
        >>> import tempfile
        >>> from alfa import FewShotClassifier
        >>> from alfa.data import Strokes
        >>> from alfa.testing import small_run
        >>> run = small_run(tempfile.mkdtemp())  # in place of one that `alfa train` made
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
        self.run = run
        self.head = head
        self.num_steps = num_steps
        self.checkpoint = checkpoint
        self.transductive = transductive
        self.value_range = value_range
        self.device = device

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 - scikit-learn's name
        """Adapt the run's model to images and their labels.

        Args:
            X: the support set, a few images of each class.
            y: the label of each: strings, whole numbers or truth values.

        Raises:
            AlfaError: an image or the run cannot be used, or there are more classes than the
                run's last layer has.
        """
        check_choice("head", self.head, ("trained", *HEADS))
        _check_labels_given(y)
        run = self._open_run()
        check_normalized(run.signature, self.run)
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
            is_guessed = self.value_range is None
            self.value_range_ = value_range(X) if is_guessed else _checked_range(self.value_range)
            self._reader = ImageReader(run.signature, self.value_range_, is_guessed, num_axes(X))
            self.signature_ = run.signature
            x = self._reader.read(X)
            chance_loss = math.log(len(self.classes_)) if len(self.classes_) > 1 else None
            self._fit(run, learners, x, torch.from_numpy(labels), chance_loss=chance_loss)
            is_right = self._logits(x).argmax(1).numpy() == labels
            self.support_accuracy_ = float(np.mean(is_right))
            self.support_hits_ = np.bincount(labels[is_right], minlength=len(self.classes_))
        return self

    @property
    def is_inductive(self) -> bool:
        """Whether what is said of an image does not depend on others that are predicted with it."""
        check_is_fitted(self)
        return self._is_inductive_model and not self.transductive

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The label of each image.

        Args:
            X: images, in any of the forms that `fit` takes.
        """
        logits = self._logits(self._read(X)[0])
        return np.asarray(self.classes_[logits.argmax(1).numpy()])

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """The probability of each class, ``[image, class]``.

        Args:
            X: images, in any of the forms that `fit` takes.
        """
        return np.asarray(self._logits(self._read(X)[0]).double().softmax(1).numpy())

    def predict_log_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """The logarithm of the probability of each class, ``[image, class]``."""
        return np.asarray(self._logits(self._read(X)[0]).double().log_softmax(1).numpy())

    def accuracies(self, X: Any, y: Any) -> dict[str, float]:  # noqa: N803
        """The part of images that is classified right, one by one and all together.

        Args:
            X: images, in any of the forms that `fit` takes.
            y: their labels.

        Returns:
            ``inductive``, each by itself, and ``transductive``, normalised together, which needs
            as much memory as all of them take at once; the latter alone where images depend on
            each other anyhow.
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
        """The logits of the fitted classes; a trained head may have more outputs."""
        together = bool(self.transductive) if transductive is None else transductive
        return self._outputs(x, transductive=together)[:, : len(self.classes_)]

    def _validate(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:  # noqa: N803
        """Validate images and labels, tables with scikit-learn's own function."""
        X = as_collection(X)  # noqa: N806
        if is_table(X):
            if not reset and not hasattr(self, "n_features_in_") and np.ndim(X) == 2:
                raise ConfigError(
                    f"X is a table of shape {list(np.shape(X))}, but the classifier was fitted on "
                    "images; give a list of images, also of a single one."
                )
            if y is None:
                return validate_data(self, X, reset=reset), None
            X, y = validate_data(self, X, y, reset=reset)  # noqa: N806
        else:
            check_is_batch(X, None if reset else self._reader.num_axes)
            if reset:
                # Left from an earlier fit on a table.
                for name in ("n_features_in_", "feature_names_in_"):
                    self.__dict__.pop(name, None)
        if y is None:
            return X, None
        y = column_or_1d(y, warn=True)
        _check_label_types(y)
        check_classification_targets(y)
        if len(y) != len(X):
            raise ConfigError(
                f"there are {len(X)} images, but {len(y)} labels; give each image one label."
            )
        return X, y

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        # It learns from few examples with what it knows of images; in tables of numbers that
        # stand for something else it finds little.
        tags.classifier_tags.poor_score = True
        return tags


def _check_labels_given(y: Any) -> None:
    if y is None:
        raise ConfigError(
            "FewShotClassifier requires y to be passed, but the target y is None; give a label "
            "for each image."
        )


def _check_label_types(y: np.ndarray) -> None:
    """Raise if there are labels that scikit-learn would call a regression target."""
    if y.dtype.kind == "O":
        for number, label in enumerate(y):
            if not isinstance(label, (str, int, np.integer)):
                raise ConfigError(
                    f"label {number} is {label!r}, but labels must be strings or whole numbers; "
                    "use str(...) of it, or the `name` of a path."
                )


def _checked_range(values: Any) -> ValueRange:
    try:
        low, high = (float(value) for value in values)
        is_right = np.isfinite([low, high]).all() and low != high
    except (TypeError, ValueError):
        is_right = False
    if not is_right:
        raise ConfigError(
            f"`value_range` is {values!r}, but must be two different numbers, those of black and "
            "white, such as (0, 1)."
        )
    return low, high
