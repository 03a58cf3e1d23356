"""The arithmetic limit of an iteration: only the products of its convolutions."""

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
    """Return a function that computes all products of convolutions in an iteration.

    Each layer has nine products per inner step and three for the queries. The input of the first
    layer has neither gradient nor tangent, so that layer has four and two. Without an outer
    gradient (`train`), each layer has three products per inner step, the first one two, and one
    for the queries. Operands are random; kernels and patches are laid out in advance.
    """
    model = learner.model
    assert isinstance(model, Convolutional)
    step = _products(model, episode.support_x, num_passes=4 if train else 2)
    query = _products(model, episode.query_x, num_passes=2 if train else 1)

    def run() -> float:
        with torch.no_grad():
            for product in step * learner.num_steps + query:
                product()
        return 0.0

    return run


def _products(model: Convolutional, x: Tensor, *, num_passes: int) -> list[Product]:
    """Return the products of all tasks in the first passes that `_of_layer` lists."""
    assert isinstance(model.network, Chain)
    num_tasks, num_examples, num_channels, height, width = x.shape
    plan = model.plan(x, DEFAULT_MODE)
    at_once = min(plan.at_once, num_tasks)
    products: list[Product] = []
    for stage in model.network.stages:
        if isinstance(stage, Norm):
            height, width = height // stage.size, width // stage.size
        if not isinstance(stage, Conv):
            continue
        num_outputs, _, *side = model.get_parameter(stage.names[0]).shape
        images = (num_examples, height, width)
        weights = (at_once, num_outputs, num_channels, *side)
        of_layer = _of_layer if products else _of_first_layer
        products += of_layer(images, weights)[:num_passes]
        num_channels = num_outputs
    return products * len(list(plan.groups(num_tasks)))


def _of_layer(images: tuple[int, ...], weights: tuple[int, ...]) -> list[Product]:
    """List the products of the forward and backward passes, and of the tangents of both."""
    x, xdot, dz, dzdot = _random_operands(images, weights)
    w, v = (Kernel.of(torch.randn(weights), x) for _ in range(2))
    return [
        partial(conv, (x, w)),
        partial(conv_backward, Term(dz, x, w)),
        partial(conv, (x, v), (xdot, w)),
        partial(conv_backward, Term(dzdot, x, w), Term(dz, xdot, v)),
    ]


def _of_first_layer(images: tuple[int, ...], weights: tuple[int, ...]) -> list[Product]:
    """Return the same products for an input without gradient or tangent."""
    w, v = (torch.randn(weights) for _ in range(2))
    x, _, dz, dzdot = _random_operands(images, weights)
    forward: list[Product]
    backward: list[Product]
    if Patches.are_faster(x, w):
        patches = Patches.of(x)
        forward = [partial(Patches.conv, patches, weight, x.shape) for weight in (w, v)]
        backward = [partial(Patches.conv_dw, gradient, patches, w) for gradient in (dz, dzdot)]
    else:
        kernel = Kernel.of(w, x)
        forward = [partial(conv, (x, weight)) for weight in (kernel, Kernel.of(v, x))]
        backward = [partial(conv_backward, Term(g, x, kernel, dx=False)) for g in (dz, dzdot)]
    return [forward[0], backward[0], forward[1], backward[1]]


def _random_operands(images: tuple[int, ...], weights: tuple[int, ...]) -> list[Tensor]:
    """Return random x, xdot, dz, and dzdot."""
    num_tasks, outputs, inputs = weights[:3]
    sizes = (inputs, inputs, outputs, outputs)
    return [torch.randn((*images, num_tasks * size)) for size in sizes]
