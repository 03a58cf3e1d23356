"""A scikit-learn classifier that learns from a few images of each class."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from PIL import Image
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from alfa.errors import ConfigError, check_choice
from alfa.estimator._base import HEADS, FewShotEstimator, Opened
from alfa.estimator._images import (
    Reader,
    ValueRange,
    check_normalised,
    is_rows,
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
        _check_labels(y)
        opened = self._opened()
        if opened.signature.loss != "cross_entropy" or len(opened.signature.input_shape) != 3:
            raise ConfigError(
                f"{self.run} was not trained on images of classes, which FewShotClassifier needs; "
                "use another run, or FewShotRegressor for one of regression."
            )
        check_normalised(opened.signature, self.run)
        with self._all_or_nothing():
            X, y = self._checked(X, y, reset=True)  # noqa: N806
            self.classes_, labels = np.unique(y, return_inverse=True)
            opened = self._with_head(opened)
            is_guessed = self.value_range is None
            self.value_range_ = value_range(X) if is_guessed else _checked_range(self.value_range)
            self._reader = Reader(opened.signature, self.value_range_, is_guessed, num_axes(X))
            self.signature_ = opened.signature
            x = self._reader.read(X)
            guessing = math.log(len(self.classes_)) if len(self.classes_) > 1 else None
            self._fit(opened, x, torch.from_numpy(labels), guessing=guessing)
            is_right = self._logits(x).argmax(1).numpy() == labels
            self.support_accuracy_ = float(np.mean(is_right))
            self.support_hits_ = np.bincount(labels[is_right], minlength=len(self.classes_))
        return self

    @property
    def is_inductive(self) -> bool:
        """Whether what is said of an image does not depend on others that are predicted with it."""
        check_is_fitted(self)
        return self._by_itself and not self.transductive

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
        _check_labels(y)
        x, y = self._read(X, y)
        ways = {"inductive": False, "transductive": True}
        if not self._by_itself:
            del ways["inductive"]
        found = {}
        for name, together in ways.items():
            logits = self._logits(x, transductive=together)
            found[name] = float(np.mean(self.classes_[logits.argmax(1).numpy()] == y))
        return found

    def _read(self, X: Any, y: Any = None) -> tuple[Tensor, Any]:  # noqa: N803
        check_is_fitted(self)
        X, y = self._checked(X, y, reset=False)  # noqa: N806
        return self._reader.read(X), y

    def _logits(self, x: Tensor, *, transductive: bool | None = None) -> Tensor:
        """Only of classes that there are: a linear layer may have more outputs."""
        together = bool(self.transductive) if transductive is None else transductive
        return self._outputs(x, transductive=together)[:, : len(self.classes_)]

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:  # noqa: N803
        """Images and labels, with scikit-learn's own checks where it has any."""
        X = _listed(X)  # noqa: N806
        if is_rows(X):
            if not reset and not hasattr(self, "n_features_in_") and np.ndim(X) == 2:
                raise ConfigError(
                    f"X is a table of shape {list(np.shape(X))}, but the classifier was fitted on "
                    "images; give a list of images, also of a single one."
                )
            if y is None:
                return validate_data(self, X, reset=reset), None
            X, y = validate_data(self, X, y, reset=reset)  # noqa: N806
        else:
            # What torch or another library calls an array is one of ours, too.
            X = _array(X) if hasattr(X, "__array__") else X  # noqa: N806
            _check_many(X, None if reset else self._reader.num_axes)
            if reset:
                # A table that was fitted before is no longer what images are held against.
                for name in ("n_features_in_", "feature_names_in_"):
                    self.__dict__.pop(name, None)
        if y is None:
            return X, None
        y = column_or_1d(y, warn=True)
        _check_names(y)
        check_classification_targets(y)
        if len(y) != len(X):
            raise ConfigError(
                f"there are {len(X)} images, but {len(y)} labels; give each image one label."
            )
        return X, y

    def _with_head(self, opened: Opened) -> Opened:
        """The run with the last layer that is wanted, if it can have as many classes."""
        if self.head != "trained":
            return opened.with_head(HEADS[self.head])
        num_outputs, way = opened.signature.num_outputs, len(self.classes_)
        if way > num_outputs and not opened.any_way:
            # Rates that ALFA generates grow without limit on prototypes that it was not trained
            # with; constant ones get further from them than from zeros.
            better = "zero" if opened.experiment.rule.name == "alfa" else "prototype"
            advice = (
                "train a run with init.name=prototype-head"
                if opened.why_fixed
                else f"use head={better!r} (--head {better})"
            )
            raise ConfigError(
                f"there are {way} classes, but the last layer of {self.run} was trained for "
                f"{num_outputs}; {advice}, as that one is made anew for any number."
            )
        return opened

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        # It learns from few examples with what it knows of images; in tables of numbers that
        # stand for something else it finds little.
        tags.classifier_tags.poor_score = True
        return tags


def _check_labels(y: Any) -> None:
    if y is None:
        raise ConfigError(
            "FewShotClassifier requires y to be passed, but the target y is None; give a label "
            "for each image."
        )


def _check_names(y: np.ndarray) -> None:
    """Refuse labels that scikit-learn would call a target of regression."""
    if y.dtype.kind == "O":
        for number, label in enumerate(y):
            if not isinstance(label, (str, int, np.integer)):
                raise ConfigError(
                    f"label {number} is {label!r}, but labels must be strings or whole numbers; "
                    "use str(...) of it, or the `name` of a path."
                )


def _listed(X: Any) -> Any:  # noqa: N803
    """What is read once, such as the files that a pattern matches, as a list.

    Raises:
        ConfigError: it is a single image.
    """
    if isinstance(X, (str, bytes, PathLike, Image.Image)):
        raise ConfigError(
            f"X is {X!r}, but must be images, one for each label; give a list, also of a single "
            "one."
        )
    known = isinstance(X, Sequence) or hasattr(X, "shape") or hasattr(X, "__array__")
    return list(X) if isinstance(X, Iterable) and not known else X


def _check_many(X: Any, num_axes: int | None) -> None:  # noqa: N803
    """Refuse no images, and one that would be taken for as many as it has lines or channels.

    Args:
        X: the images.
        num_axes: of an image of the support set, as far as that is known.
    """
    if not len(X):
        raise ConfigError("there are no images; at least one is needed.")
    shape: list[int] = []
    # Lists within lists may be of different lengths.
    with contextlib.suppress(ValueError):
        if isinstance(X, np.ndarray) or isinstance(X[0], (list, tuple)):
            shape = list(np.shape(X))
    # Three grey images are none of them where those of the support set have channels.
    if len(shape) == 3 and (shape[2] in (1, 3, 4) or (num_axes == 3 and shape[0] == 3)):
        raise ConfigError(
            f"X has the shape {shape}, which is that of one image, not of {shape[0]}; give a list "
            "of images, also of a single one."
        )


def _array(X: Any) -> np.ndarray:  # noqa: N803
    try:
        return np.asarray(X)
    # Tensors that are elsewhere, are being differentiated, or have a type of their own.
    except (ValueError, TypeError, RuntimeError) as error:
        raise ConfigError(f"X cannot be made an array of NumPy's ({error}).") from None


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
