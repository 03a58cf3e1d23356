"""Networks of stages: gradients of a loss, the statistics of some examples, and memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.ops import Plan, cross_entropy, mse, network, network_gradients, per_task
from alfa.ops.stages import Chain, Conv, Flatten, Linear, Norm, Pool, Stage, Sum, _leaves

NUM_TASKS, NUM_EXAMPLES = 3, 6

Twin = Callable[..., Tensor]


def conv(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight, padding="same")


def norm(
    x: Tensor, gamma: Tensor, beta: Tensor, own: int | None, size: int = 2, slope: float = 0.01
) -> Tensor:
    """Normalize by the statistics of the first examples."""
    var, mean = torch.var_mean(x[:own], (0, 2, 3), correction=0, keepdim=True)
    normed = (x - mean) * (var + 1e-5).rsqrt() * gamma[:, None, None] + beta[:, None, None]
    return F.max_pool2d(F.leaky_relu(normed, slope), size)


def blocks(own: int | None, x: Tensor, *w: Tensor) -> Tensor:
    x = norm(conv(x, w[0]), *w[1:3], own)
    x = norm(conv(x, w[3]), *w[4:6], own, size=1, slope=0.0)
    return F.linear(x.flatten(1), *w[6:])


def residual(own: int | None, x: Tensor, *w: Tensor) -> Tensor:
    total = norm(conv(x, w[0]), *w[1:3], own, size=1) + conv(x, w[3])
    return F.linear(F.max_pool2d(F.relu(total), 2).flatten(1), *w[4:])


NETWORKS: dict[str, tuple[Stage, Twin, list[tuple[int, ...]]]] = {
    "blocks": (
        Chain(
            *(Conv("conv1"), Norm("norm1")),
            *(Conv("conv2"), Norm("norm2", size=1, slope=0.0)),
            *(Flatten(), Linear("linear")),
        ),
        blocks,
        [(2, 1, 3, 3), (2,), (2,), (2, 2, 3, 3), (2,), (2,), (3, 8), (3,)],
    ),
    "residual": (
        Chain(
            Sum(Chain(Conv("conv"), Norm("norm", size=1)), Conv("shortcut")),
            *(Pool(), Flatten(), Linear("linear")),
        ),
        residual,
        [(2, 1, 3, 3), (2,), (2,), (2, 1, 1, 1), (3, 8), (3,)],
    ),
}

WANTED: dict[str, Callable[[str], bool]] = {
    "everything": lambda name: True,
    "all but norms": lambda name: "norm" not in name,
    "only norms": lambda name: "norm" in name,
    "only the last layer": lambda name: name.startswith("linear"),
}

LOSSES = {
    "cross_entropy": cross_entropy,
    "mse": mse,
    "huber": per_task(F.huber_loss),
    "without a second derivative": lambda outputs, y: (outputs * y).flatten(1).sum(1),
}


def randn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def draw(name: str) -> tuple[Tensor, list[Tensor]]:
    shapes = NETWORKS[name][2]
    w = [randn(NUM_TASKS, *shape, seed=seed) for seed, shape in enumerate(shapes)]
    return randn(NUM_TASKS, NUM_EXAMPLES, 1, 4, 5, seed=99), [p.requires_grad_() for p in w]


def targets_for(loss: str) -> Tensor:
    classes = torch.arange(3).repeat(2).expand(NUM_TASKS, -1)
    return classes if loss == "cross_entropy" else F.one_hot(classes, 3).double()


def plain(name: str, x: Tensor, w: Sequence[Tensor], own: int | None = None) -> Tensor:
    twin = NETWORKS[name][1]
    return torch.stack([twin(own, *task) for task in zip(x, *w, strict=True)])


def plain_gradients(
    name: str, x, y, w, loss, wanted, num_norm_examples=None
) -> tuple[Tensor, list[Tensor]]:
    losses = loss(plain(name, x, w, num_norm_examples), y)
    adapted = [p for p, want in zip(w, wanted, strict=True) if want]
    return losses, list(torch.autograd.grad(losses.sum(), adapted, create_graph=True))


def outer(gradients: Sequence[Tensor], w: Sequence[Tensor], **options) -> list[Tensor]:
    """Return the derivative of the gradients in a direction, in every parameter."""
    total = sum((g * randn(*g.shape, seed=7)).sum() for g in gradients)
    return list(torch.autograd.grad(total, w, allow_unused=True, materialize_grads=True, **options))


def derivatives(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the output and its first and second derivatives."""
    inputs = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    output = function(*inputs)
    weights = randn(*output.shape, seed=8).requires_grad_()
    first = torch.autograd.grad(output, inputs, weights, create_graph=True)
    return [output, *first, *outer(first, [*inputs, weights])]


def assert_equal(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("loss", "part"),
    [
        *(("cross_entropy", part) for part in WANTED),
        *((loss, "everything") for loss in LOSSES if loss != "cross_entropy"),
    ],
)
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_and_their_derivative_equal_those_of_plain_torch(way, name, loss, part) -> None:
    (x, w), y, stage = draw(name), targets_for(loss), NETWORKS[name][0]
    wanted = [WANTED[part](parameter) for parameter in stage.names]
    losses, expected = plain_gradients(name, x, y, w, LOSSES[loss], wanted)
    ours = network_gradients(Plan(stage, 2), x, y, w, LOSSES[loss], wanted)
    assert_equal([ours[0], *ours[1]], [losses, *expected])
    assert_equal(outer(ours[1], w), outer(expected, w))


@pytest.fixture
def products(monkeypatch) -> Callable[[], int]:
    """Count the products of convolutions."""
    made = []
    conv, conv_backward = _leaves.conv, _leaves.conv_backward

    def forth(*terms):
        made.extend([1] * len(terms))
        return conv(*terms)

    def back(*terms):
        made.extend([1] * sum(term.dx + term.dw for term in terms))
        return conv_backward(*terms)

    monkeypatch.setattr(_leaves, "conv", forth)
    monkeypatch.setattr(_leaves, "conv_backward", back)
    monkeypatch.setattr(_leaves.Patches, "are_faster", lambda x, weight: False)
    return lambda: len(made)


def test_no_product_is_made_for_layers_that_are_not_adapted(products) -> None:
    (x, w), stage = draw("blocks"), NETWORKS["blocks"][0]
    wanted = [name.startswith("linear") for name in stage.names]
    _, gradients = network_gradients(Plan(stage, NUM_TASKS), x, targets_for("mse"), w, mse, wanted)
    assert products() == 2  # forwards through two convolutions
    outer(gradients, w)
    assert products() == 2 + 3  # back through both, whose weights are learned outside


def test_a_pass_without_a_gradient_keeps_no_layer(alive_at_norms) -> None:
    x, w = draw("blocks")
    with torch.no_grad():
        network(Plan(NETWORKS["blocks"][0], NUM_TASKS), x, w)
    # The image of the first norm is gone when the second one begins.
    assert alive_at_norms == [1, 1]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", NETWORKS)
def test_tasks_side_by_side_or_one_after_the_other_give_the_same(name, loss) -> None:
    (x, w), y, stage = draw(name), targets_for(loss), NETWORKS[name][0]
    results = []
    for at_once in (1, 2, NUM_TASKS):
        plan = Plan(stage, at_once)
        losses, gradients = network_gradients(plan, x, y, w, LOSSES[loss], [True] * len(w))
        results.append([losses, *gradients, *outer(gradients, w), network(plan, x, w)])
    for result in results[1:]:
        assert_equal(result, results[0])


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_with_the_statistics_of_some_examples_equal_plain_torch(
    way, name, at_once
) -> None:
    (x, w), y, stage = draw(name), targets_for("mse"), NETWORKS[name][0]
    everything = [True] * len(w)
    losses, expected = plain_gradients(name, x, y, w, mse, everything, num_norm_examples=2)
    ours = network_gradients(Plan(stage, at_once, num_norm_examples=2), x, y, w, mse, everything)
    assert_equal([ours[0], *ours[1]], [losses, *expected])
    assert_equal(outer(ours[1], w), outer(expected, w))


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("own", [1, 4, NUM_EXAMPLES])
def test_statistics_of_the_first_examples_equal_plain_torch_to_the_second_derivative(
    way, own, size, at_once
) -> None:
    inputs = [randn(3, NUM_EXAMPLES, 2, 3, 5), randn(3, 2, seed=1), randn(3, 2, seed=2)]
    plan = Plan(Norm("norm", size=size), at_once, own)

    def twin(x: Tensor, *w: Tensor) -> Tensor:
        return torch.stack([norm(*task, own, size) for task in zip(x, *w, strict=True)])

    found = derivatives(lambda x, *w: network(plan, x, w), inputs)
    assert_equal(found, derivatives(twin, inputs))


@pytest.mark.parametrize("own", [2, 4])
@pytest.mark.parametrize("name", NETWORKS)
def test_an_example_beyond_the_first_does_not_touch_another(way, name, own) -> None:
    (x, w), plan = draw(name), Plan(NETWORKS[name][0], num_norm_examples=own)
    before = network(plan, x, w)
    for moved in range(own, NUM_EXAMPLES):
        changed = x.clone()
        changed[:, moved] += 1 + randn(4, 5)
        differs = (network(plan, changed, w) != before).flatten(2).any(2).any(0)
        assert differs.nonzero().flatten().tolist() == [moved]
    changed = x.clone()
    changed[:, 0] += 1 + randn(4, 5)
    assert (network(plan, changed, w) != before).any(2).all()


def test_the_statistics_of_all_examples_are_the_usual_ones(way) -> None:
    (x, w), stage = draw("blocks"), NETWORKS["blocks"][0]
    usual = network(Plan(stage), x, w)
    assert torch.equal(network(Plan(stage, num_norm_examples=NUM_EXAMPLES), x, w), usual)


def test_only_the_biases_of_a_sum_may_be_adapted() -> None:
    stage, wanted = Sum(Linear("left"), Linear("right")), [False, True, False, True]
    x, y = randn(2, 4, 3), randn(2, 4, 2, seed=1)
    shapes = [(2, 2, 3), (2, 2), (2, 2, 3), (2, 2)]
    w = [randn(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)]
    outputs = torch.stack(
        [F.linear(x[t], w[0][t], w[1][t]) + F.linear(x[t], w[2][t], w[3][t]) for t in range(2)]
    )
    expected = torch.autograd.grad(mse(outputs, y).sum(), [w[1], w[3]], create_graph=True)
    _, found = network_gradients(Plan(stage, 2), x, y, w, mse, wanted)
    assert_equal(found, expected)
    assert_equal(outer(found, w), outer(expected, w))


@pytest.mark.parametrize("loss", [F.mse_loss, lambda outputs, y: (outputs - y).square().mean(2)])
def test_a_loss_that_is_not_one_value_per_task_is_refused(loss) -> None:
    (x, w), stage = draw("blocks"), NETWORKS["blocks"][0]
    with pytest.raises(ConfigError, match="must return one value per task"):
        network_gradients(Plan(stage), x, targets_for("mse"), w, loss, [True] * len(w))


def test_the_losses_are_constants() -> None:
    (x, w), stage = draw("blocks"), NETWORKS["blocks"][0]
    losses, _ = network_gradients(Plan(stage), x, targets_for("mse"), w, mse, [True] * len(w))
    assert not losses.requires_grad


@pytest.mark.parametrize("name", NETWORKS)
def test_a_graph_that_is_kept_gives_the_same_again(way, name) -> None:
    (x, w), stage = draw(name), NETWORKS[name][0]
    _, gradients = network_gradients(Plan(stage, 2), x, targets_for("mse"), w, mse, [True] * len(w))
    output = network(Plan(stage, 2), x, w)
    first = torch.autograd.grad(output.square().sum(), w, create_graph=True)
    for results in ([output], gradients, first):
        once, again = (outer(results, w, retain_graph=True) for _ in range(2))
        assert all(map(torch.equal, once, again))


def test_a_derivative_beyond_the_second_is_refused() -> None:
    (x, w), stage = draw("blocks"), NETWORKS["blocks"][0]
    _, gradients = network_gradients(Plan(stage), x, targets_for("mse"), w, mse, [True] * len(w))
    total = sum(gradient.square().sum() for gradient in gradients)
    second = torch.autograd.grad(total, w, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        sum(product.sum() for product in second).backward()


@pytest.fixture
def alive(monkeypatch) -> Iterator[Callable[[], int]]:
    """Count the inputs of norms that are still in memory, without the garbage collector."""
    seen: list[StorageWeakRef] = []
    real = Norm.forward

    def forward(self, x, tape):
        seen.append(StorageWeakRef(x.untyped_storage()))
        return real(self, x, tape)

    monkeypatch.setattr(Norm, "forward", forward)
    gc.disable()
    yield lambda: sum(not storage.expired() for storage in seen)
    gc.enable()


@pytest.fixture
def alive_at_norms(alive, monkeypatch) -> list[int]:
    """Count the inputs of norms in memory while each norm runs."""
    counts: list[int] = []
    real = Norm._check
    monkeypatch.setattr(Norm, "_check", lambda *given: counts.append(alive()) or real(*given))
    return counts


def as_outputs(x: Tensor, w: Sequence[Tensor]) -> list[Tensor]:
    return [network(Plan(NETWORKS["residual"][0]), x, w)]


def as_gradients(x: Tensor, w: Sequence[Tensor]) -> list[Tensor]:
    plan, y = Plan(NETWORKS["residual"][0]), targets_for("mse")
    return network_gradients(plan, x, y, w, mse, [True] * len(w))[1]


@pytest.mark.parametrize("run", [as_outputs, as_gradients])
def test_what_a_pass_keeps_is_freed_by_its_backward(alive, run) -> None:
    x, w = draw("residual")
    results = run(x, w)
    assert alive() == NUM_TASKS
    outer(results, w)
    assert alive() == 0


@pytest.mark.parametrize("run", [as_outputs, as_gradients])
def test_what_a_pass_keeps_is_freed_with_its_results(alive, run) -> None:
    x, w = draw("residual")
    results = run(x, w)
    assert alive() == NUM_TASKS
    del results
    assert alive() == 0


def test_what_two_passes_keep_is_freed_with_their_results(alive) -> None:
    x, w = draw("residual")
    outputs = as_outputs(x, w)
    first = outer(outputs, w, create_graph=True)
    del outputs
    assert alive() == NUM_TASKS
    outer(first, w)
    del first
    assert alive() == 0


@pytest.mark.parametrize("way", ["no parameter needs one", "no_grad"])
@pytest.mark.parametrize("run", [as_outputs, as_gradients])
def test_without_a_gradient_a_task_leaves_nothing_to_the_next(alive, monkeypatch, run, way) -> None:
    x, w = draw("residual")
    counts = []
    spy = Norm.forward
    monkeypatch.setattr(Norm, "forward", lambda *given: counts.append(alive()) or spy(*given))
    with torch.no_grad() if way == "no_grad" else nullcontext():
        results = run(x, w if way == "no_grad" else [p.detach() for p in w])
    assert all(result.grad_fn is None for result in results)
    assert counts == [0] * NUM_TASKS
    assert alive() == 0
