"""Every stage equals plain torch, task by task, to its second derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.ops import Plan, _compiled, network
from alfa.ops._conv import Patches
from alfa.ops.stages import (
    Chain,
    Conv,
    Flatten,
    GlobalPool,
    Linear,
    Mask,
    MaxPool,
    Norm,
    Pool,
    Split,
    Stage,
    Sum,
    to_stage_layout,
)


class Case(NamedTuple):
    """A stage, its twin in plain torch for one task, and the shapes of a task."""

    stage: Stage
    twin: Callable[..., Tensor]
    x: tuple[int, ...]
    w: tuple[tuple[int, ...], ...] = ()

    def ours(self, at_once: int = 1) -> Callable[..., Tensor]:
        return lambda x, *w: network(Plan(self.stage, at_once), x, w)

    def plain(self, x: Tensor, *w: Tensor) -> Tensor:
        return torch.stack([self.twin(*task) for task in zip(x, *w, strict=True)])

    def draw(self, num_tasks: int = 3, seed: int = 0) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return [
            torch.randn((num_tasks, *shape), generator=generator, dtype=torch.float64)
            for shape in (self.x, *self.w)
        ]


def conv(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight, padding="same")


def norm(size: int = 2, slope: float = 0.01) -> Callable[..., Tensor]:
    def twin(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        normed = F.batch_norm(x, None, None, gamma, beta, training=True, eps=1e-5)
        return F.max_pool2d(F.leaky_relu(normed, slope), size)

    return twin


def pool(size: int = 2, padding: int = 0, slope: float = 0.0) -> Callable[..., Tensor]:
    # The padding is never selected.
    value = -torch.inf if slope else 0.0
    return lambda x: F.max_pool2d(F.pad(F.leaky_relu(x, slope), [padding] * 4, value=value), size)


def one_block(size: int = 2, slope: float = 0.01) -> tuple[Stage, Callable[..., Tensor]]:
    def twin(x: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, *linear: Tensor) -> Tensor:
        return F.linear(norm(size, slope)(conv(x, weight), gamma, beta).flatten(1), *linear)

    parts = Conv("conv"), Norm("norm", size=size, slope=slope), Flatten(), Linear("linear")
    return Chain(*parts), twin


def residual() -> tuple[Stage, Callable[..., Tensor]]:
    def twin(x: Tensor, *w: Tensor) -> Tensor:
        main = norm(1, 0.0)(conv(x, w[0]), *w[1:3])
        main = norm(1, 1.0)(conv(main, w[3]), *w[4:6])
        shortcut = norm(1, 1.0)(conv(x, w[6]), *w[7:9])
        return F.linear(pool()(main + shortcut).mean((2, 3)), *w[9:])

    main = Chain(
        Conv("conv1"),
        Norm("norm1", size=1, slope=0.0),
        Conv("conv2"),
        Norm("norm2", size=1, slope=1.0),
    )
    shortcut = Chain(Conv("shortcut"), Norm("norm3", size=1, slope=1.0))
    return Chain(Sum(main, shortcut), Pool(), GlobalPool(), Linear("linear")), twin


FACTORS = torch.randn((2, 2, 3, 4), generator=torch.Generator().manual_seed(5)).double()


def mask() -> Stage:
    """Return a stage that multiplies by the same factors for every task."""
    rows = FACTORS.permute(0, 2, 3, 1)
    return Mask(lambda x, num_tasks: rows.repeat(1, 1, 1, num_tasks))


def pre_activation() -> tuple[Stage, Callable[..., Tensor]]:
    def twin(x: Tensor, *w: Tensor) -> Tensor:
        x = norm(1, 0.0)(x, *w[:2])
        main = conv(FACTORS * norm(1, 0.0)(conv(x, w[2]), *w[3:5]), w[5])
        return norm(1, 0.0)(main + conv(x, w[6]), *w[7:])

    first = Chain(Conv("conv1"), Norm("norm2", size=1, slope=0.0), mask(), Conv("conv2"))
    block = Chain(Norm("norm1", size=1, slope=0.0), Sum(first, Conv("shortcut")))
    return Chain(block, Norm("norm3", size=1, slope=0.0)), twin


def in_parts(num_parts: int, plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, *w: torch.cat([plain(part, *w) for part in x.chunk(num_parts)])


IMAGES = (2, 2, 3, 4)
PAIR = ((2,), (2,))
CASES = {
    "conv 3 x 3": Case(Conv("conv"), conv, IMAGES, ((3, 2, 3, 3),)),
    "conv 1 x 1": Case(Conv("conv"), conv, IMAGES, ((3, 2, 1, 1),)),
    **{
        f"conv {side} x {side} of stride 2, height {height}": Case(
            Conv("conv", stride=2),
            lambda x, weight, side=side: F.conv2d(x, weight, stride=2, padding=side // 2),
            (2, 2, height, 6),
            ((3, 2, side, side),),
        )
        for side in (1, 3, 7)
        for height in (4, 5)
    },
    "conv of one channel and stride 2": Case(
        Conv("conv", stride=2),
        lambda x, weight: F.conv2d(x, weight, stride=2, padding=1),
        (2, 1, 5, 4),
        ((3, 1, 3, 3),),
    ),
    **{
        f"max pool, height {height}": Case(
            MaxPool(), lambda x: F.max_pool2d(x, 3, 2, 1), (2, 2, height, 6)
        )
        for height in (2, 4, 5)
    },
    "sum with a shortcut that is nothing": Case(
        Sum(Conv("conv"), Chain()), lambda x, w: conv(x, w) + x, IMAGES, ((2, 2, 3, 3),)
    ),
    "conv of one channel": Case(Conv("conv"), conv, (2, 1, 3, 4), ((3, 1, 3, 3),)),
    **{
        f"norm, size {size}, slope {slope}": Case(
            Norm("norm", size=size, slope=slope), norm(size, slope), IMAGES, PAIR
        )
        for size in (1, 2)
        for slope in (0.0, 0.01, 1.0)
    },
    "linear": Case(Linear("linear"), F.linear, (4, 3), ((2, 3), (2,))),
    **{
        f"pool, size {size}, padding {padding}": Case(
            Pool(size=size, padding=padding), pool(size, padding), IMAGES
        )
        for size in (1, 2)
        for padding in (0, 1)
    },
    **{
        f"leaky pool, size {size}, padding {padding}": Case(
            Pool(size=size, padding=padding, slope=0.1), pool(size, padding, 0.1), (2, 2, 3, 5)
        )
        for size, padding in ((1, 0), (2, 0), (2, 1))
    },
    "mask": Case(mask(), lambda x: x * FACTORS, IMAGES),
    "mask of nothing": Case(Mask(lambda x, num_tasks: None), lambda x: 1 * x, IMAGES),
    "pre-activation block": Case(
        *pre_activation(),
        IMAGES,
        (*PAIR, (2, 2, 3, 3), *PAIR, (2, 2, 3, 3), (2, 2, 1, 1), *PAIR),
    ),
    "flatten": Case(Flatten(), lambda x: x.flatten(1), IMAGES),
    "mean of the image": Case(GlobalPool(), lambda x: x.mean((2, 3)), IMAGES),
    "one block": Case(*one_block(), (3, 1, 5, 4), ((2, 1, 3, 3), *PAIR, (2, 8), (2,))),
    "sum of convs": Case(
        Sum(Conv("wide"), Conv("narrow")),
        lambda x, wide, narrow: conv(x, wide) + conv(x, narrow),
        IMAGES,
        ((2, 2, 3, 3), (2, 2, 1, 1)),
    ),
    **{
        f"norm in parts, slope {slope}": Case(
            Split(Norm("norm", size=1, slope=slope), 3),
            in_parts(3, norm(1, slope)),
            (7, 2, 3, 4),
            PAIR,
        )
        for slope in (0.0, 1.0)
    },
    "conv, then norm in more parts than images": Case(
        Chain(Conv("conv"), Split(Norm("norm"), 4), Conv("next")),
        lambda x, w, gamma, beta, v: conv(in_parts(4, norm())(conv(x, w), gamma, beta), v),
        IMAGES,
        ((2, 2, 3, 3), *PAIR, (1, 2, 3, 3)),
    ),
    "residual block": Case(
        *residual(),
        (2, 1, 4, 5),
        ((2, 1, 3, 3), *PAIR, (2, 2, 3, 3), *PAIR, (2, 1, 1, 1), *PAIR, (2, 2), (2,)),
    ),
}


def derivatives(
    function: Callable[..., Tensor], inputs: list[Tensor], *, moves: bool = True, seed: int = 9
) -> list[Tensor]:
    """Return the output and its first and second derivatives, in the first input if it moves."""
    generator = torch.Generator().manual_seed(seed)
    leaves = [tensor.detach().clone() for tensor in inputs]
    variables = [leaf.requires_grad_() for leaf in leaves[0 if moves else 1 :]]
    output = function(*leaves)
    weights = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    weights.requires_grad_()
    first = torch.autograd.grad(output, variables, weights, create_graph=True)
    directions = [
        torch.randn(leaf.shape, generator=generator, dtype=output.dtype) for leaf in variables
    ]
    second = torch.autograd.grad(
        first, [*variables, weights], directions, allow_unused=True, materialize_grads=True
    )
    return [output, *first, *second]


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


def uses_kernels(stage: Stage) -> bool:
    return isinstance(stage, Norm | Pool) or any(map(uses_kernels, getattr(stage, "stages", ())))


def convolves(stage: Stage) -> bool:
    """Return whether Winograd applies to a stage with weights of 3 x 3."""
    is_conv = isinstance(stage, Conv) and stage.stride == 1
    return is_conv or any(map(convolves, getattr(stage, "stages", ())))


NAMES_AND_WAYS = [
    *((name, "torch") for name in CASES),
    *((name, "compiled") for name, case in CASES.items() if uses_kernels(case.stage)),
    *(
        (name, "winograd")
        for name, case in CASES.items()
        if convolves(case.stage) and any(shape[2:] == (3, 3) for shape in case.w)
    ),
]


@pytest.mark.parametrize(("name", "way"), NAMES_AND_WAYS, indirect=["way"])
@pytest.mark.parametrize("at_once", [1, 3])
def test_a_stage_equals_plain_torch_to_the_second_derivative(name, way, at_once) -> None:
    case = CASES[name]
    inputs = case.draw()
    expected = derivatives(case.plain, inputs)
    assert_equal(derivatives(case.ours(at_once), inputs), expected)


@pytest.mark.parametrize(
    ("name", "way"), [pair for pair in NAMES_AND_WAYS if CASES[pair[0]].w], indirect=["way"]
)
@pytest.mark.parametrize("at_once", [1, 3])
def test_the_input_needs_no_gradient(name, way, at_once) -> None:
    case = CASES[name]
    inputs = case.draw()
    expected = derivatives(case.plain, inputs, moves=False)
    assert_equal(derivatives(case.ours(at_once), inputs, moves=False), expected)


@pytest.mark.parametrize("way", ["torch", "compiled", "winograd"], indirect=True)
@pytest.mark.parametrize("name", ["one block", "residual block"])
def test_finite_differences_agree(name, way) -> None:
    case = CASES[name]
    inputs = tuple(tensor.requires_grad_() for tensor in case.draw(num_tasks=2, seed=3))
    assert torch.autograd.gradcheck(case.ours(at_once=2), inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(case.ours(at_once=2), inputs, fast_mode=True)


@pytest.mark.parametrize("name", ["norm, size 1, slope 0.01", "pool, size 2, padding 0"])
def test_norm_and_pool_use_the_compiled_kernels_where_there_are_any(way, name, monkeypatch) -> None:
    kernels, used = _compiled.norm_kernels(), []
    monkeypatch.setattr(_compiled, "norm_kernels", lambda: used.append(1) or kernels)
    CASES[name].ours()(*CASES[name].draw())
    assert bool(used) == (way == "compiled")


@pytest.mark.parametrize("how", ["shared", "joined"])
@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_tasks_may_share_weights_or_keep_them_in_one_vector(how, at_once) -> None:
    case = CASES["one block"]
    x, *w = case.draw()
    sizes = [p[0].numel() for p in w]
    whole = torch.cat([p.flatten(1) for p in w], dim=1)
    whole = whole[0] if how == "shared" else whole

    def on(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def run(x: Tensor, whole: Tensor) -> Tensor:
            parts = whole.expand(3, -1).split(sizes, dim=1)
            shaped = (part.unflatten(1, shape) for part, shape in zip(parts, case.w, strict=True))
            return function(x, *shaped)

        return run

    expected = derivatives(on(case.plain), [x, whole])
    assert_equal(derivatives(on(case.ours(at_once)), [x, whole]), expected)


@pytest.mark.parametrize("num_tasks", [4, 5])
@pytest.mark.parametrize("moves", [True, False], ids=["x moves", "x is fixed"])
def test_images_of_one_channel_are_convolved_by_patches_while_tasks_are_few(
    num_tasks, moves
) -> None:
    case = CASES["conv of one channel"]
    inputs = case.draw(num_tasks)
    assert Patches.are_faster(to_stage_layout(inputs[0]), inputs[1]) == (num_tasks == 4)
    expected = derivatives(case.plain, inputs, moves=moves)
    assert_equal(derivatives(case.ours(at_once=num_tasks), inputs, moves=moves), expected)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    "name", ["pool, size 2, padding 0", "pool, size 2, padding 1", "one block"]
)
def test_of_equal_places_in_a_window_the_first_counts(way, name, sign) -> None:
    case = CASES[name]
    x, *w = (tensor.round() for tensor in case.draw())
    if w:
        w[1] = sign * (w[1].abs() + 1)
    inputs = [sign * x, *w]
    expected = derivatives(case.plain, inputs)
    assert_equal(derivatives(case.ours(at_once=3), inputs), expected)


def test_a_pool_of_an_image_that_is_smaller_than_a_window_is_refused(way) -> None:
    with pytest.raises(ConfigError, match="images of 1 x 4 are too small for another 2 x 2 pool"):
        network(Plan(Pool()), torch.zeros(3, 4, 2, 1, 4), [])


@pytest.mark.parametrize("place", range(4))
def test_the_pool_passes_on_what_is_not_a_number(way, place) -> None:
    x = torch.ones(1, 1, 1, 2, 2, dtype=torch.float64)
    x.view(-1)[place] = torch.nan
    assert network(Plan(Pool()), x, []).isnan().all()


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    num_tasks=st.integers(1, 3),
    at_once=st.integers(1, 3),
    num_examples=st.integers(2, 4),
    num_channels=st.integers(1, 2),
    filters=st.integers(1, 3),
    height=st.integers(2, 7),
    width=st.integers(2, 7),
    size=st.integers(1, 2),
    slope=st.sampled_from([0.0, 0.01, 1.0]),
    sign=st.sampled_from([-1.0, 1.0]),
    moves=st.booleans(),
)
def test_images_of_any_shape_will_do(
    way,
    num_tasks,
    at_once,
    num_examples,
    num_channels,
    filters,
    height,
    width,
    size,
    slope,
    sign,
    moves,
) -> None:
    features = filters * (height // size) * (width // size)
    case = Case(
        *one_block(size, slope),
        (num_examples, num_channels, height, width),
        ((filters, num_channels, 3, 3), (filters,), (filters,), (2, features), (2,)),
    )
    inputs = case.draw(num_tasks)
    inputs[2][:, 0] = sign * inputs[2][:, 0].abs()
    expected = derivatives(case.plain, inputs, moves=moves)
    assert_equal(derivatives(case.ours(at_once), inputs, moves=moves), expected)


SHORTCUTS = {
    "input last": Case(
        Sum(Conv("conv"), Chain()), lambda x, w: conv(x, w) + x, IMAGES, ((2, 2, 3, 3),)
    ),
    "input first": Case(
        Sum(Chain(), Conv("conv")), lambda x, w: x + conv(x, w), IMAGES, ((2, 2, 3, 3),)
    ),
    "flat input first": Case(
        Sum(Flatten(), Chain(Conv("conv"), Flatten())),
        lambda x, w: (x + conv(x, w)).flatten(1),
        (2, 1, 3, 3),
        ((1, 1, 3, 3),),
    ),
}


@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_sum_may_pass_its_input_on(name) -> None:
    case = SHORTCUTS[name]
    inputs = case.draw()
    assert_equal(derivatives(case.ours(), inputs), derivatives(case.plain, inputs))


FIXED_FIRST = {
    "flatten": Case(
        Chain(Flatten(), Linear("linear")),
        lambda x, *w: F.linear(x.flatten(1), *w),
        (3, 1, 2, 2),
        ((2, 4), (2,)),
    ),
    "mean of the image": Case(
        Chain(GlobalPool(), Linear("linear")),
        lambda x, *w: F.linear(x.mean((2, 3)), *w),
        (3, 2, 2, 2),
        ((2, 2), (2,)),
    ),
    "pool": Case(
        Chain(Pool(), Conv("conv")), lambda x, w: conv(pool()(x), w), (3, 1, 4, 4), ((2, 1, 3, 3),)
    ),
}


@pytest.mark.parametrize("moves", [True, False], ids=["x moves", "x is fixed"])
@pytest.mark.parametrize("name", FIXED_FIRST)
def test_a_network_may_begin_with_a_stage_without_parameters(name, moves) -> None:
    case = FIXED_FIRST[name]
    inputs = case.draw()
    expected = derivatives(case.plain, inputs, moves=moves)
    assert_equal(derivatives(case.ours(), inputs, moves=moves), expected)
