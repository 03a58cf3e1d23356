"""Few-shot regression on sine curves (section 4.5)."""

from dataclasses import dataclass

import numpy as np
import torch

from alfa.data._base import Split, Tasks, register_tasks, task_rng
from alfa.types import Count, Episode


@dataclass(frozen=True)
class Sine:
    """The curves y = A sin(w x + p) of a stack of tasks; each attribute is ``[task]``."""

    amplitude: np.ndarray
    frequency: np.ndarray
    phase: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return y for x ``[task, example]``."""
        angles = self.frequency[:, None] * x + self.phase[:, None]
        y: np.ndarray = self.amplitude[:, None] * np.sin(angles)
        return y


@register_tasks("sinusoid")
class Sinusoids(Tasks):
    """Regression tasks on sine curves.

    The amplitude is uniform in [0.1, 5], the frequency in [0.8, 1.2], the phase in [0, pi], and x
    in [-5, 5].

    Args:
        num_support: the number of support points, k.
        num_query: the number of query points.

    Examples:
        >>> from alfa import Sinusoids
        >>> episode = Sinusoids(num_support=10, num_query=100).episode(0, num_tasks=4)
        >>> episode.support_x.shape, episode.query_y.shape
        (torch.Size([4, 10, 1]), torch.Size([4, 100, 1]))
    """

    input_shape = (1,)
    num_outputs = 1
    loss = "mse"

    def __init__(self, *, num_support: Count = 10, num_query: Count = 100) -> None:
        self.num_support, self.num_query = num_support, num_query

    def episode(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> Episode:
        curves, x = self.draw(first, num_tasks=num_tasks, split=split, seed=seed)
        data = torch.from_numpy(np.stack([x, curves(x)]).astype(np.float32)).unsqueeze(-1)
        support, query = data.split([self.num_support, self.num_query], dim=2)
        return Episode(support[0], support[1], query[0], query[1])

    def draw(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> tuple[Sine, np.ndarray]:
        """Draw the curves of the tasks, and their x ``[task, support and query]``."""
        num_values, indices = 3 + self.num_support + self.num_query, range(first, first + num_tasks)
        draws = np.stack([task_rng(seed, split, index).random(num_values) for index in indices])
        curves = Sine(
            amplitude=0.1 + 4.9 * draws[:, 0],
            frequency=0.8 + 0.4 * draws[:, 1],
            phase=np.pi * draws[:, 2],
        )
        return curves, 10 * draws[:, 3:] - 5
