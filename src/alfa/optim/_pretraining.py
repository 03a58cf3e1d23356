"""The options of pretraining."""

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import ConfigDict
from torch import nn
from torch.optim import Optimizer

from alfa.errors import ConfigError, check_choice
from alfa.optim._optimizers import Adam
from alfa.types import Count, NonNegativeFloat, NonNegativeInt, PositiveFloat


@dataclass(frozen=True)
class Pretraining:
    """Options of pretraining, which minimizes the mean cross-entropy of each batch.

    With distillation, the training is repeated: each generation starts from new weights and
    imitates the model of the generation before, too.

    Attributes:
        num_epochs: number of passes over all images in each generation.
        batch_size: number of images per step; batch norm uses their statistics.
        learning_rate: the initial rate.
        augment: flip images left to right and shift them at random.
        max_batches: limits the batches per epoch, and the held-out batches, for trials; None uses
            all.
        optimizer: ``"adam"`` or ``"sgd"``.
        momentum: the momentum of SGD.
        weight_decay: the coefficient of the l2 term on all parameters.
        schedule: ``"cosine"`` lowers the rate to zero along half a cosine, ``"step"`` multiplies it
            by `decay_factor` after each epoch in `decay_epochs`.
        decay_epochs: numbers of completed epochs, for the schedule ``"step"`` only; without any,
            the rate is constant.
        decay_factor: the factor of the schedule ``"step"``.
        num_distillations: number of generations after the first.
        temperature: divides the outputs of both models before they are compared.
        distillation_weight: w in (1 - w) cross-entropy + w temperature^2 KL(teacher, student).
        classifier: ``"linear"`` trains with a linear layer in the place of any head, ``"head"``
            with the head of the experiment.
    """

    # Unknown options in a configuration are errors.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    num_epochs: Count = 10
    batch_size: Count = 64
    learning_rate: PositiveFloat = 0.001
    augment: bool = False
    max_batches: Count | None = None
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: NonNegativeFloat = 0.0
    weight_decay: NonNegativeFloat = 0.0
    schedule: Literal["cosine", "step"] = "cosine"
    decay_epochs: tuple[Count, ...] = ()
    decay_factor: PositiveFloat = 0.1
    num_distillations: NonNegativeInt = 0
    temperature: PositiveFloat = 4.0
    distillation_weight: NonNegativeFloat = 0.5
    classifier: Literal["linear", "head"] = "linear"

    def __post_init__(self) -> None:
        for name, least in (
            ("num_epochs", 1),
            ("batch_size", 2),
            ("max_batches", 1),
            ("num_distillations", 0),
            ("momentum", 0),
            ("weight_decay", 0),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"`{name}` must be at least {least}, got {value}.")
        for name in ("learning_rate", "decay_factor", "temperature"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"`{name}` must be above 0, got {getattr(self, name)}.")
        if not 0 <= self.distillation_weight <= 1:
            raise ConfigError(
                f"`distillation_weight` must be from 0 to 1, got {self.distillation_weight}."
            )
        check_choice("optimizer", self.optimizer, ("adam", "sgd"))
        check_choice("schedule", self.schedule, ("cosine", "step"))
        check_choice("classifier", self.classifier, ("linear", "head"))
        if self.optimizer != "sgd" and self.momentum:
            raise ConfigError(
                f"`momentum` is {self.momentum}, but only the optimizer 'sgd' has one; omit it."
            )
        if self.schedule != "step" and self.decay_epochs:
            raise ConfigError(
                f"`decay_epochs` is {list(self.decay_epochs)}, but only the schedule 'step' uses "
                "it; set `schedule` to 'step'."
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        return {**asdict(self), "decay_epochs": list(self.decay_epochs)}

    def make_optimizer(self, model: nn.Module) -> Optimizer:
        """Make the optimizer of all parameters of a model."""
        parameters, rate, decay = list(model.parameters()), self.learning_rate, self.weight_decay
        if self.optimizer == "adam":
            return Adam(parameters, lr=rate, weight_decay=decay, fused=True)
        return torch.optim.SGD(parameters, lr=rate, weight_decay=decay, momentum=self.momentum)

    def rate(self, epoch: int, part: float = 0.0) -> float:
        """Return the learning rate in an epoch, counted from 0, of which a `part` is complete."""
        if self.schedule == "cosine":
            done = (epoch + part) / self.num_epochs
            return self.learning_rate * (1 + math.cos(math.pi * done)) / 2
        num_decays = sum(epoch >= after for after in self.decay_epochs)
        return float(self.learning_rate * self.decay_factor**num_decays)
