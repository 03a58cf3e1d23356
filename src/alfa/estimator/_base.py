"""The common base of both estimators, which adapts a run's model to one task."""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from alfa._runtime import check_device
from alfa.errors import AlfaWarning, ConfigError, check_choice
from alfa.evaluation import check_finite, without_dropout
from alfa.learner import Learner
from alfa.models import batch_statistics, uses_batch_statistics
from alfa.runs import CHECKPOINTS, Run
from alfa.types import Rates

# Without OpenMP, some kernels are not thread-safe.
_KERNEL_LOCK = threading.Lock()


class FewShotEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose `fit` runs the inner loop of a trained run."""

    num_steps_: int

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

    def _open_run(self) -> Run:
        """Validate the arguments and open the run."""
        check_choice("checkpoint", self.checkpoint, CHECKPOINTS)
        check_device(self.device, name="`device`")
        steps = 0 if self.num_steps is None else self.num_steps
        if not isinstance(steps, Integral) or isinstance(steps, bool) or steps < 0:
            raise ConfigError(
                "`num_steps` must be a whole number of at least 0, or None for the number of test "
                f"steps of the run, got {steps!r}."
            )
        given = self._run_or_default()
        run = given if isinstance(given, Run) else Run.open(given)
        self.num_steps_ = run.num_test_steps if self.num_steps is None else self.num_steps
        return run

    def _run_or_default(self) -> Any:
        """Return `run`; raise a ConfigError if it is missing and has no default."""
        if self.run is None:
            raise ConfigError(
                f"{type(self).__name__} requires `run`, the folder of a trained run, such as the "
                "one from `alfa train sinusoid`."
            )
        return self.run

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore all attributes if `fit` fails."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(
        self,
        run: Run,
        learners: Sequence[Learner],
        x: Tensor,
        y: Tensor,
        *,
        chance_loss: float | None = None,
        has_new_head: bool = False,
        stacklevel: int = 4,
    ) -> None:
        """Adapt each learner to the support set x, y; average their outputs.

        Warnings name the caller at `stacklevel`.
        """
        found = [self._adapt(run, learner, x, y) for learner in learners]
        losses = found[0].support_losses
        for learner, each in zip(learners, found, strict=True):
            takes_steps = has_new_head or max(self.num_steps_, learner.num_steps) > 0
            message = _not_learned(each.support_losses, chance_loss, takes_steps=takes_steps)
            if message is not None:
                warnings.warn(message, AlfaWarning, stacklevel=stacklevel - 1)
        self.support_losses_ = losses
        self.rates_ = _rates(found[0].rates, learners[0])
        self.model_ = mean_of([each.model for each in found])
        parts = list(self.model_.modules())
        self._is_inductive_model = not any(map(uses_batch_statistics, parts))
        # Without batch norm, examples never depend on each other.
        self._has_batch_norm = any(isinstance(part, _BatchNorm) for part in parts)
        self._training_flags = [(part, part.training) for part in self.model_.modules()]

    def _adapt(self, run: Run, learner: Learner, x: Tensor, y: Tensor) -> _Adaptation:
        """Adapt a learner to a support set."""
        support_x = x[None].to(self.device, learner.dtype)
        support_y = y[None].to(self.device, learner.dtype if y.is_floating_point() else None)
        with _KERNEL_LOCK, without_dropout(learner.model), _enough_images("fit on more images"):
            adapted = learner.adapt(support_x, support_y, num_steps=self.num_steps_, order="none")
            last = learner.loss(adapted.predict(support_x), support_y)
            model = adapted.frozen(support_x[0])
        check_finite(
            adapted.support_losses,
            last,
            rule=run.rule_name,
            where=f"during {type(self).__name__}.fit",
            last="the support loss after the last step",
            advice="try fewer steps (`num_steps`) or other examples.",
        )
        losses = torch.cat([adapted.support_losses[:, 0], last]).detach().cpu().numpy()
        return _Adaptation(model, losses, adapted.rates)

    def _outputs(self, x: Tensor, *, transductive: bool = False) -> Tensor:
        """Return the outputs of the adapted model on the CPU."""
        with self._fitted_mode():
            return self._outputs_of(self.model_, x, transductive=transductive)

    def _fitted_mode(self) -> contextlib.AbstractContextManager[None]:
        """Set `training` as after `fit`, because the user may have changed it since."""
        return _training(self._training_flags)

    def _outputs_of(
        self, model: nn.Module, x: Tensor, *, transductive: bool, alone: bool = True
    ) -> Tensor:
        """Return the outputs of an adapted model.

        An inductive model classifies images one by one, unless rounding does not matter.
        """
        example = next(itertools.chain(model.parameters(), model.buffers()))
        x = x.to(example.device, example.dtype)
        is_inductive = not any(map(uses_batch_statistics, model.modules()))
        together = transductive or not is_inductive or not alone
        advice = ", or omit `transductive`" if is_inductive else ""
        with (
            torch.no_grad(),
            batch_statistics(model) if transductive else contextlib.nullcontext(),
            without_dropout(model),
            _enough_images(f"predict more images at once{advice}"),
        ):
            # The rounding of a convolution depends on the batch size, but an inductive prediction
            # must not.
            batches = [x] if together else x.split(1)
            return torch.cat([model(batch) for batch in batches]).cpu()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


class MeanOutput(nn.Module):
    """The mean of the outputs of several models."""

    def __init__(self, *models: nn.Module) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([model(x) for model in self.models]).mean(0)


def mean_of(models: Sequence[nn.Module]) -> nn.Module:
    """Return one model, or the mean of several."""
    return models[0] if len(models) == 1 else MeanOutput(*models)


@dataclass(frozen=True)
class _Adaptation:
    """A learner after adaptation to a support set."""

    model: nn.Module
    support_losses: np.ndarray  # [step + 1]
    rates: Sequence[Rates]


def _not_learned(losses: np.ndarray, chance_loss: float | None, *, takes_steps: bool) -> str | None:
    """Return a warning if adaptation increased the support loss, or left it at chance.

    Methods such as prototypical networks take no steps.
    """
    first, last = losses[[0, -1]]
    if last > first:
        return (
            f"adaptation increased the support loss from {first:.3g} to {last:.3g}, because the "
            "run was trained with another last layer or other images; try head='zero' (--head "
            "zero), fewer steps, or a run that was trained on similar images."
        )
    if chance_loss is not None and last >= chance_loss:
        after = f"after {len(losses) - 1} steps " if takes_steps else ""
        advice = "more steps or " if takes_steps else ""
        return (
            f"{after}the support loss is {last:.3g}, no better than chance ({chance_loss:.3g}); "
            f"try {advice}a run that was trained on similar images."
        )
    return None


@contextlib.contextmanager
def _training(flags: Sequence[tuple[nn.Module, bool]]) -> Iterator[None]:
    """Set `training` of modules."""
    before = [part.training for part, _ in flags]
    for part, flag in flags:
        part.training = flag
    try:
        yield
    finally:
        for (part, _), flag in zip(flags, before, strict=True):
            part.training = flag


@contextlib.contextmanager
def _enough_images(advice: str) -> Iterator[None]:
    """Explain torch's error about a batch that is too small for batch norm."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise ConfigError(f"batch norm cannot normalize 1 image; {advice}.") from None


def _rates(rates: Sequence[Rates], learner: Learner) -> dict[str, Any]:
    """Return alpha and beta of all steps, ``[step, layer]``, and the names of the layers."""
    layers = learner.init.layers
    steps = [torch.cat(step.per_layer(layers, 1)).cpu().double().numpy() for step in rates]
    alpha, beta = np.array(steps).reshape(-1, 2, len(layers)).transpose(1, 0, 2)
    return {"layers": tuple(layers), "alpha": alpha, "beta": beta}
