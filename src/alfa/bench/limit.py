"""The arithmetic limit: the convolutions of an iteration, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import torch

from alfa.inner import Learner
from alfa.models import AS_USUAL, Convolutional
from alfa.ops.stages import Conv, Norm, Tape
from alfa.types import Episode


def convolutions(learner: Learner, episode: Episode, *, train: bool) -> Callable[[], float]:
    """All products of convolutions that an iteration makes, on random numbers.

    Nine for every layer and step, four for the first, whose input has neither gradient nor
    tangent; for the queries three, and two for the first. Without an outer gradient three and two
    for every step, and one for the queries.

    Args:
        learner: whose model is a chain of convolutions and norms, such as `alfa.Conv4`.
        episode: tasks of the size to measure.
        train: whether there is an outer gradient.
    """
    model = learner.model
    assert isinstance(model, Convolutional)
    support = _passes(model, episode.support_x, tangents=train)
    query = _passes(model, episode.query_x, tangents=False, backward=train)

    def run() -> float:
        with torch.no_grad():
            for _ in range(learner.num_steps):
                support()
            query()
        return 0.0

    return run


def _passes(
    model: Convolutional, x: torch.Tensor, *, tangents: bool, backward: bool = True
) -> Callable[[], None]:
    plan = model.plan(x, AS_USUAL)
    num_tasks, num_examples, num_channels, height, width = x.shape
    at_once = min(plan.at_once, num_tasks)
    layers = []
    for stage in model.network.stages:  # type: ignore[attr-defined]
        if isinstance(stage, Norm):
            height, width = height // stage.size, width // stage.size
        if not isinstance(stage, Conv):
            continue
        shape = (num_examples, height, width)
        outputs, _, *side = model.get_parameter(stage.names[0]).shape
        weight = torch.randn(at_once, outputs, num_channels, *side)
        inputs = torch.randn(*shape, at_once * num_channels)
        gradient = torch.randn(*shape, at_once * outputs)
        layers.append((stage, inputs, weight, gradient))
        num_channels = outputs

    def run() -> None:
        for _ in range(0, num_tasks, at_once):
            for number, (conv, inputs, weight, gradient) in enumerate(layers):
                tape = Tape([weight], at_once)
                conv.forward(inputs, tape)
                if backward:
                    conv.backward(gradient, tape, need_dx=number > 0)
                if tangents:
                    conv.tangent(inputs if number > 0 else None, [weight], tape)
                    conv.backward_tangent(gradient, [weight], tape, need_dx=number > 0)

    return run
