"""Standard workloads for measuring the engine."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from alfa.bench.limit import convolutions
from alfa.bench.plain import Plain, PlainModel, WithHigher
from alfa.data import Sinusoids
from alfa.inits import LearnedInit
from alfa.learner import Learner
from alfa.models import MLP, Conv4, Model
from alfa.ops import cross_entropy, mse
from alfa.rules import ALFA, SGD
from alfa.types import Episode

Engine = Literal["alfa", "plain", "higher", "limit"]


@dataclass(frozen=True)
class Workload:
    """One outer iteration, in training or in evaluation."""

    title: str
    size: int | None  # of the images; None for sinusoids
    channels: int
    shots: int  # per class, or per task for sinusoids
    num_tasks: int
    train: bool = True  # with an outer gradient
    required: float = 0.0  # the required speed, as a multiple of plain torch
    aim: float = 0.0  # the desired speed, likewise

    def learner(self, dtype: torch.dtype = torch.float32) -> Learner:
        """Build the learner; its weights are the same at every call."""
        generator = torch.Generator().manual_seed(0)
        model: Model
        if self.size is None:
            model = MLP((1,), 1, generator=generator)
        else:
            model = Conv4((self.channels, self.size, self.size), 5, generator=generator)
        init = LearnedInit(model.to(dtype))
        rule = SGD(init.layers) if self.size is None else ALFA(init.layers, generator=generator)
        loss = mse if self.size is None else cross_entropy
        return Learner(model, init=init, rule=rule.to(dtype), loss=loss)

    def episode(self, dtype: torch.dtype = torch.float32) -> Episode:
        """Draw random images of 5 classes with 15 queries each, or sinusoids."""
        if self.size is None:
            sinusoids = Sinusoids(num_support=self.shots)
            return sinusoids.episode(0, num_tasks=self.num_tasks).to("cpu", dtype)
        generator = torch.Generator().manual_seed(1)
        support, query = 5 * self.shots, 75
        shape = (self.num_tasks, support + query, self.channels, self.size, self.size)
        x = torch.randn(shape, generator=generator, dtype=dtype)
        y = torch.arange(5).repeat(self.shots + 15).expand(self.num_tasks, -1)
        return Episode(x[:, :support], y[:, :support], x[:, support:], y[:, support:])

    def iteration(self, engine: Engine) -> Callable[[], float]:
        """Return a function that runs one iteration and returns the mean query loss."""
        learner, episode = self.learner(), self.episode()
        if engine == "limit":
            return convolutions(learner, episode, train=self.train)
        if engine != "alfa":
            plain = (Plain if engine == "plain" else WithHigher)(learner, PlainModel(learner.model))
            return lambda: float(plain(episode))
        parameters = list(learner.meta_parameters())

        def iteration() -> float:
            if not self.train:
                return float(learner(episode, order="none").query_losses.mean())
            for parameter in parameters:
                parameter.grad = None
            loss = learner(episode).query_losses.mean()
            loss.backward()
            return float(loss.detach())

        return iteration


WORKLOADS = {
    "train-84": Workload("train, 84x84x3, 5-way 5-shot, 2 tasks", 84, 3, 5, 2, True, 3, 4.5),
    "train-32": Workload("train, 32x32x3, 5-way 5-shot, 2 tasks", 32, 3, 5, 2, True, 1.8, 2.5),
    "train-28": Workload("train, 28x28x1, 5-way 1-shot, 4 tasks", 28, 1, 1, 4, True, 1.8, 3.5),
    "evaluate-84": Workload("evaluate, 84x84x3, 5-way 5-shot, 2 tasks", 84, 3, 5, 2, False, 3, 5),
    "sinusoid": Workload("train, sinusoid, MAML, 10-shot, 4 tasks", None, 0, 10, 4, True, 3, 5),
}
