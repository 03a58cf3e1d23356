"""The arithmetic limit: only the products of an iteration's convolutions, and their sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from alfa.learner import Learner
from alfa.models import DEFAULT_MODE, Convolutional
from alfa.ops import Kernel, Patches, Term, conv, conv_backward
from alfa.ops.stages import Chain, Conv, Norm
from alfa.types import Episode

Product = Callable[[], object]


def convolutions(learner: Learner, episode: Episode, *, train: bool) -> Callable[[], float]:
    """All products of convolutions in an iteration, on random numbers.

    There are nine for every layer and step, but four for the first layer, whose input has neither
    gradient nor tangent; for the queries three and two. Without an outer gradient there are three
    and two for every step, and one for the queries. Kernels and patches are laid out beforehand.

    Args:
        learner: its model is a chain of convolutions and norms, such as `alfa.Conv4`.
        episode: tasks of the size to measure.
        train: whether there is an outer gradient.
    """
    model = learner.model
    assert isinstance(model, Convolutional)
    step = _products(model, episode.support_x, backward=True, tangents=train)
    query = _products(model, episode.query_x, backward=train, tangents=False)

    def run() -> float:
        with torch.no_grad():
            for product in step * learner.num_steps + query:
                product()
        return 0.0

    return run


def _products(model: Convolutional, x: Tensor, *, backward: bool, tangents: bool) -> list[Product]:
    """The products of one pass over all tasks."""
    assert isinstance(model.network, Chain)
    num_tasks, num_examples, num_channels, height, width = x.shape
    plan = model.plan(x, DEFAULT_MODE)
    at_once = min(plan.at_once, num_tasks)
    of_group: list[Product] = []
    for stage in model.network.stages:
        if isinstance(stage, Norm):
            height, width = height // stage.size, width // stage.size
        if not isinstance(stage, Conv):
            continue
        outputs, _, *side = model.get_parameter(stage.names[0]).shape
        of_layer = _of_layer if of_group else _of_first_layer
        of_group += of_layer(
            (num_examples, height, width),
            (at_once, outputs, num_channels, *side),
            backward=backward,
            tangents=tangents,
        )
        num_channels = outputs
    return of_group * len(list(plan.groups(num_tasks)))


def _of_layer(
    images: tuple[int, ...], weights: tuple[int, ...], *, backward: bool, tangents: bool
) -> list[Product]:
    x, xdot, dz, dzdot = _random_operands(images, weights)
    w, v = (Kernel.of(torch.randn(weights), x) for _ in range(2))
    products: list[Product] = [partial(conv, (x, w))]
    if backward:
        products += [partial(conv_backward, Term(dz, x, w))]
    if tangents:
        products += [
            partial(conv, (x, v), (xdot, w)),
            partial(conv_backward, Term(dzdot, x, w), Term(dz, xdot, v)),
        ]
    return products


def _of_first_layer(
    images: tuple[int, ...], weights: tuple[int, ...], *, backward: bool, tangents: bool
) -> list[Product]:
    w, v = (torch.randn(weights) for _ in range(2))
    x, _, dz, dzdot = _random_operands(images, weights)
    products: list[Product]
    if Patches.are_faster(x, w):
        patches = Patches.of(x)
        products = [partial(Patches.conv, patches, weight, x.shape) for weight in (w, v)]
        products += [partial(Patches.conv_dw, gradient, patches, w) for gradient in (dz, dzdot)]
    else:
        kernel = Kernel.of(w, x)
        products = [partial(conv, (x, weight)) for weight in (kernel, Kernel.of(v, x))]
        products += [partial(conv_backward, Term(g, x, kernel, dx=False)) for g in (dz, dzdot)]
    z, zdot, dw, dwdot = products
    return [z, *([dw] if backward else []), *([zdot, dwdot] if tangents else [])]


def _random_operands(images: tuple[int, ...], weights: tuple[int, ...]) -> list[Tensor]:
    """x, xdot, dz, and dzdot"""
    num_tasks, outputs, inputs = weights[:3]
    sizes = (inputs, inputs, outputs, outputs)
    return [torch.randn((*images, num_tasks * size)) for size in sizes]
