"""What the estimators share: a trained run, adapted to one task."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from alfa.build import build_learner
from alfa.config import Experiment, Part
from alfa.data import Signature
from alfa.errors import AlfaWarning, ConfigError, check_choice
from alfa.inner import Learner
from alfa.models import is_by_batch, normalising_together
from alfa.ops import check_device
from alfa.train import Checkpoint, Run
from alfa.train.evaluate import check_finite, without_dropout
from alfa.types import Rates

HEADS = {"prototype": "prototype-head", "zero": "zero-head"}
# Some kernels must not be called by two threads at a time, on machines without OpenMP.
_TURN = threading.Lock()


class FewShotEstimator(BaseEstimator):  # type: ignore[misc]
    """The inner loop as `fit`; the two estimators are made of it."""

    run: Any
    num_steps: int | None
    checkpoint: str
    device: str

    def _opened(self) -> Opened:
        """The run, read anew, so that `fit` follows what the arguments say now."""
        if self.run is None:
            raise ConfigError(
                f"{type(self).__name__} has no `run`; give it a folder that `alfa train` made, "
                "such as the one that `alfa train --preset strokes-demo` makes in minutes."
            )
        check_choice("checkpoint", self.checkpoint, ("best", "last", "ensemble"))
        check_device(self.device, name="`device`")
        steps = 0 if self.num_steps is None else self.num_steps
        if not isinstance(steps, Integral) or isinstance(steps, bool) or steps < 0:
            raise ConfigError(
                f"`num_steps` is {steps!r}, but must be a whole number of 0 or more, or None for "
                "as many as the run's own test took."
            )
        run = Run(Path(self.run))
        experiment = run.experiment()
        return Opened(
            experiment, run.signature(experiment), run.load_for(self.checkpoint, experiment)
        )

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A fit that fails leaves everything as it was, and no mixture of two."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, opened: Opened, x: Tensor, y: Tensor, *, guessing: float | None = None) -> None:
        """Adapt to one task, and keep what came of it.

        Args:
            opened: the run.
            x: the support set, ``[support, ...]``, on the CPU.
            y: its targets.
            guessing: the loss of who guesses; None where nobody can.

        Sets ``model_``, the adapted model as an ordinary torch module; ``support_losses_``,
        before every step and after the last; ``rates_``, what the rule used in every step.
        """
        models = []
        for number, member in enumerate(opened.members):
            learner = opened.learner(member).to(self.device)
            support_x = x.to(self.device, learner.dtype)
            support_y = y.to(self.device, learner.dtype if y.is_floating_point() else None)
            steps = opened.num_steps if self.num_steps is None else self.num_steps
            with _TURN, without_dropout(learner.model), _enough(len(x), "fit on"):
                adapted = learner.adapt(
                    support_x.unsqueeze(0), support_y.unsqueeze(0), num_steps=steps, order="none"
                )
                last = learner.loss(adapted.predict(support_x.unsqueeze(0)), support_y.unsqueeze(0))
                frozen = adapted.frozen(support_x)
            check_finite(
                adapted.support_losses,
                last,
                rule=opened.experiment.rule.name,
                where=f"while {type(self).__name__} was fitted",
                last="the support loss after the last step",
                advice="fewer steps (`num_steps`), or other examples, may help.",
            )
            losses = torch.cat([adapted.support_losses[:, 0], last]).detach().cpu().numpy()
            _warn_if_worse(losses, guessing)
            if not number:
                self.support_losses_ = losses
                self.rates_ = _rates(adapted.rates, learner)
            models.append(frozen)
        self.model_ = models[0] if len(models) == 1 else Mean(*models)
        self.num_steps_ = steps
        self._by_itself = not any(map(is_by_batch, self.model_.modules()))
        self._modes = [part.training for part in self.model_.modules()]

    def _outputs(self, x: Tensor, *, transductive: bool = False) -> Tensor:
        """What the adapted model says of examples, on the CPU."""
        model = self.model_
        example = next((p for p in model.parameters()), next(iter(model.buffers()), None))
        assert example is not None
        x = x.to(example.device, example.dtype)
        together = transductive or not self._by_itself
        normalising = normalising_together(model) if transductive else contextlib.nullcontext()
        advice = ", or leave `transductive` out" if self._by_itself else ""
        enough = _enough(len(x), "predict", advice)
        as_fitted = _in_modes(model, self._modes)
        with torch.no_grad(), as_fitted, normalising, without_dropout(model), enough:
            # One by one: the rounding of a convolution depends on how many examples it is given,
            # and what is said of one must not.
            parts = [x] if together else x.split(1)
            return torch.cat([model(part) for part in parts]).cpu()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


def _warn_if_worse(losses: np.ndarray, guessing: float | None) -> None:
    """Say where a model is bad at the very examples that it was shown.

    Args:
        losses: of the support set, before every step and after the last.
        guessing: the loss of who guesses; None where nobody can.
    """
    first, last = losses[[0, -1]]
    if last > first:
        told = (
            f"adaptation made the loss of the support set rise from {first:.3g} to {last:.3g}: the "
            "run has learned its rates with another last layer or other images; head='zero' "
            "(--head zero), fewer steps, or a run that was trained on images like these may help."
        )
    elif guessing is not None and last >= guessing:
        told = (
            f"after {len(losses) - 1} steps the loss of the support set is {last:.3g}, and that of "
            f"who guesses {guessing:.3g}: these images are not known any better; more steps, or a "
            "run that was trained on images like these may help."
        )
    else:
        return
    warnings.warn(told, AlfaWarning, stacklevel=4)


@contextlib.contextmanager
def _in_modes(model: nn.Module, modes: Sequence[bool]) -> Iterator[None]:
    """A model as it was fitted, for a while, whatever `train` and `eval` have been called since."""
    parts = list(model.modules())
    before = [part.training for part in parts]
    # What a user has put in its place has its own.
    for part, mode in zip(parts, modes if len(modes) == len(parts) else before, strict=True):
        part.training = mode
    try:
        yield
    finally:
        for part, mode in zip(parts, before, strict=True):
            part.training = mode


@contextlib.contextmanager
def _enough(count: int, what: str, advice: str = "") -> Iterator[None]:
    """Say in a sentence where examples are too few for batch norm.

    Args:
        count: of the examples.
        what: is done with them.
        advice: what else helps than more of them.
    """
    try:
        yield
    except ValueError as error:
        # Torch's own word where a channel has a single value.
        if "more than 1 value per channel" not in str(error):
            raise
        raise ConfigError(
            f"{count} image is too few to be normalised by its own statistics; {what} more at "
            f"once{advice}."
        ) from None


@dataclass(frozen=True)
class Opened:
    """A run that is to be adapted.

    Attributes:
        experiment: how it was trained.
        signature: of the tasks that it was trained on.
        members: its models, one or more.
    """

    experiment: Experiment
    signature: Signature
    members: list[Checkpoint]

    def with_head(self, name: str) -> Opened:
        """The same, with a last layer that every task makes itself."""
        init = self.experiment.init
        if self.why_fixed:
            other = ""
            if init.name == "attenuated" and not self.any_way:
                other = (
                    ", or train a run with init.around.name=prototype-head, which makes its last "
                    "layer for every task"
                )
            raise ConfigError(f"{self.why_fixed}; leave `head` out{other}.")
        options = {key: value for key, value in init.options.items() if key in ("adapt", "head")}
        changed = self.experiment.model_copy(update={"init": Part(name=name, **options)})
        return replace(self, experiment=changed)

    @property
    def why_fixed(self) -> str:
        """Why its last layer cannot be changed; nothing where it can."""
        init = self.experiment.init
        if init.name not in ("learned", *HEADS.values()):
            return (
                f"`head` can be changed where the run's init is 'learned', but it is {init.name!r}"
            )
        if self.experiment.rule.options.get("per_parameter_decay"):
            return (
                "`head` cannot be changed, as the run has learned a decay for each single weight "
                "of its last layer (rule.per_parameter_decay)"
            )
        return ""

    @property
    def any_way(self) -> bool:
        """Whether every task makes the last layer itself, for any number of classes."""
        # What an init that wraps another can do is up to that one.
        return build_learner(self.experiment, self.signature).init.any_way

    def learner(self, member: Checkpoint) -> Learner:
        """The learner with the weights of one of its models."""
        learner = build_learner(self.experiment, self.signature)
        # A checkpoint of another init has the same weights.
        member.restore(learner)
        return learner

    @property
    def num_steps(self) -> int:
        inner = self.experiment.inner
        return inner.num_steps if inner.num_test_steps is None else inner.num_test_steps


class Mean(nn.Module):
    """The mean of the outputs of several models."""

    def __init__(self, *models: nn.Module) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([model(x) for model in self.models]).mean(0)


def _rates(rates: Sequence[Rates], learner: Learner) -> dict[str, Any]:
    """Alpha and beta of every step, ``[step, layer]`` each, and the names of the layers."""
    layers = learner.init.layers
    steps = [torch.cat(step.per_layer(layers, 1)).cpu().double().numpy() for step in rates]
    alpha, beta = np.array(steps).reshape(-1, 2, len(layers)).transpose(1, 0, 2)
    return {"layers": tuple(layers), "alpha": alpha, "beta": beta}
