"""SNAIL against plain loops, and its order of time."""

import math

import pytest
import torch
from torch import nn

from alfa.errors import ConfigError
from alfa.models import SNAIL
from alfa.models._snail import Attention, CausalConv

WAY, SIZE = 3, 4
Y = torch.tensor([0, 1, 2, 2, 0, 1])


def linear(layer: nn.Linear, x: list[float]) -> list[float]:
    weight, bias = layer.weight.tolist(), layer.bias.tolist()
    return [
        sum(w * value for w, value in zip(row, x, strict=True)) + b
        for row, b in zip(weight, bias, strict=True)
    ]


def attended(block: Attention, xs: list[list[float]]) -> list[list[float]]:
    """Return the outputs of an attention block for a whole sequence."""
    keys, values = ([linear(layer, x) for x in xs] for layer in (block.key, block.value))
    outputs = []
    for time, x in enumerate(xs):
        asked = linear(block.query, x)
        past = range(time + 1)
        dots = [sum(a * b for a, b in zip(asked, keys[t], strict=True)) for t in past]
        weights = [math.exp(dot / math.sqrt(len(asked))) for dot in dots]
        read = [
            sum(w * values[t][n] for t, w in zip(past, weights, strict=True)) / sum(weights)
            for n in range(len(values[0]))
        ]
        outputs.append(x + read)
    return outputs


def convolved(block: CausalConv, xs: list[list[float]]) -> list[list[float]]:
    """Return the outputs of a dense block for a whole sequence."""
    outputs = []
    for time, x in enumerate(xs):
        earlier = time - block.dilation
        before = xs[earlier] if earlier >= 0 else [0.0] * len(x)
        both = linear(block.linear, before + x)
        half = len(both) // 2
        pairs = zip(both[:half], both[half:], strict=True)
        outputs.append(x + [math.tanh(a) / (1 + math.exp(-b)) for a, b in pairs])
    return outputs


@pytest.fixture
def head() -> SNAIL:
    torch.manual_seed(0)
    return SNAIL((SIZE,), WAY, max_support=4, filters=3).double()


def outputs_of(head, z, y, query):
    fitted = {name: tensor[0] for name, tensor in head.fit(z[None], y[None], WAY).items()}
    return torch.func.functional_call(head, fitted, (query,))


def test_logits_are_those_of_loops_over_the_sequence(head, randn) -> None:
    z, query = randn(6, SIZE), randn(2, SIZE)
    found = outputs_of(head, z, Y, query)
    labels = torch.eye(WAY)[Y].tolist()
    support = [own + label for own, label in zip(z.tolist(), labels, strict=True)]
    for place, q in enumerate(query.tolist()):
        xs = [*support, q + [0.0] * WAY]
        for block in head.blocks:
            xs = (attended if isinstance(block, Attention) else convolved)(block, xs)
        wanted = torch.tensor(linear(head.linear, xs[-1]), dtype=torch.float64)
        torch.testing.assert_close(found[place], wanted, rtol=1e-9, atol=1e-11)


def test_blocks_have_the_published_sizes() -> None:
    sizes = []
    for block in SNAIL((64,), 5).blocks:
        if isinstance(block, Attention):
            sizes.append((block.key.out_features, block.value.out_features))
        else:
            sizes.append((block.dilation, block.linear.out_features // 2))
    convs = [(2**number, 128) for number in range(1, 6)]  # ceil(log2(26)) = 5
    assert sizes == [(64, 32), *convs, (256, 128), *convs, (512, 256)]


@pytest.mark.parametrize(("max_support", "count"), [(1, 1), (2, 2), (3, 2), (4, 3), (31, 5)])
def test_the_number_of_convolutions_follows_the_length_of_the_sequence(max_support, count) -> None:
    head = SNAIL((2,), 2, max_support=max_support, filters=1)
    assert sum(isinstance(block, CausalConv) for block in head.blocks) == 2 * count


def test_a_later_element_never_changes_earlier_outputs(head, randn) -> None:
    support, queries = randn(6, SIZE + WAY), randn(3, SIZE + WAY)

    def run(support, queries):
        for block in head.blocks:
            support, queries = block(support, queries)
        return support, queries

    before, _ = run(support, queries)
    for place in range(6):
        changed = support.clone()
        changed[place] += 1
        after, _ = run(changed, queries)
        same = [torch.equal(a, b) for a, b in zip(before, after, strict=True)]
        assert same == [True] * place + [False] * (6 - place)
    assert torch.equal(run(support, queries + 1)[0], before)


def test_queries_are_independent_but_the_order_of_the_support_set_matters(head, randn) -> None:
    z, query = randn(6, SIZE), randn(4, SIZE)
    outputs = outputs_of(head, z, Y, query)
    alone = torch.cat([outputs_of(head, z, Y, q[None]) for q in query])
    torch.testing.assert_close(outputs, alone)
    order = torch.tensor([5, 0, 1, 2, 3, 4])
    assert not torch.allclose(outputs_of(head, z[order], Y[order], query), outputs)


def test_the_order_only_matters_through_the_convolutions(head, randn) -> None:
    """The last position of a single attention block reads a set."""
    support, queries = randn(6, SIZE + WAY), randn(4, SIZE + WAY)
    order = torch.tensor([5, 0, 1, 2, 3, 4])
    attention = head.blocks[0]
    torch.testing.assert_close(
        attention(support, queries)[1], attention(support[order], queries)[1]
    )


def test_tasks_may_have_fewer_classes_but_not_more(head, randn) -> None:
    z = randn(1, 4, SIZE)
    assert head.fit(z, torch.tensor([[0, 1, 0, 1]]), 2)["support"].shape == (1, 4, SIZE + WAY)
    with pytest.raises(ConfigError, match=r"at most 3 classes, because .* but a task has 4"):
        head.fit(z, torch.arange(4)[None], 4)
