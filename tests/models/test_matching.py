"""Matching networks against plain loops."""

import math

import pytest
import torch

from alfa.models import Matching, MatchingFCE

SIZE, WAY = 4, 3
Y = torch.tensor([0, 1, 2, 2, 0, 1, 2])


def cosine(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(x * x for x in b))


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


class Cell:
    """An LSTM cell on lists of numbers, with torch's order of the gates."""

    def __init__(self, *parameters: torch.Tensor) -> None:
        self.inputs, self.hidden, self.bias, self.hidden_bias = (p.tolist() for p in parameters)

    def __call__(self, x, h, c):
        gates = []
        for row in range(4 * SIZE):
            total = self.bias[row] + self.hidden_bias[row]
            total += sum(w * value for w, value in zip(self.inputs[row], x, strict=True))
            total += sum(w * value for w, value in zip(self.hidden[row], h, strict=True))
            gates.append(total)
        i, f, g, o = (gates[n * SIZE : (n + 1) * SIZE] for n in range(4))
        c = [sigmoid(f[n]) * c[n] + sigmoid(i[n]) * math.tanh(g[n]) for n in range(SIZE)]
        return [sigmoid(o[n]) * math.tanh(c[n]) for n in range(SIZE)], c


def lstm(cell: Cell, xs: list[list[float]]) -> list[list[float]]:
    h, c, outputs = [0.0] * SIZE, [0.0] * SIZE, []
    for x in xs:
        h, c = cell(x, h, c)
        outputs.append(h)
    return outputs


def logits_of(head, z, query):
    """Return the outputs of a head that is fitted to one task."""
    fitted = {name: tensor[0] for name, tensor in head.fit(z[None], Y[None], WAY).items()}
    return torch.func.functional_call(head, fitted, (query,))


def test_logits_are_sums_of_cosines(randn) -> None:
    z, query = randn(7, SIZE), randn(5, SIZE)
    found = logits_of(Matching((SIZE,), 2).double(), z, query)
    for place, q in enumerate(query.tolist()):
        for k in range(WAY):
            members = [row for row, y in zip(z.tolist(), Y.tolist(), strict=True) if y == k]
            wanted = sum(cosine(q, row) for row in members)
            assert found[place, k].item() == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("num_reads", [1, 3])
def test_full_context_embeddings_are_those_of_loops(randn, num_reads) -> None:
    torch.manual_seed(1)
    head = MatchingFCE((SIZE,), 2, num_reads=num_reads).double()
    z, query = randn(7, SIZE), randn(5, SIZE)
    found = logits_of(head, z, query)

    parameters = list(head.support_lstm.parameters())
    forward = lstm(Cell(*parameters[:4]), z.tolist())
    backward = lstm(Cell(*parameters[4:]), z.tolist()[::-1])[::-1]
    g = [
        [a + b + c for a, b, c in zip(*rows, strict=True)]
        for rows in zip(z.tolist(), forward, backward, strict=True)
    ]
    cell = Cell(*head.query_lstm.parameters())
    for place, f in enumerate(query.tolist()):
        h, c = [0.0] * SIZE, [0.0] * SIZE
        for step in range(num_reads):
            scores = [math.exp(sum(a * b for a, b in zip(h, row, strict=True))) for row in g]
            if step == 0:
                assert len(set(scores)) == 1  # the first read is the mean
            r = [
                sum(s * row[n] for s, row in zip(scores, g, strict=True)) / sum(scores)
                for n in range(SIZE)
            ]
            h, c = cell(f + r, h, c)
            h = [a + b for a, b in zip(h, f, strict=True)]
        for k in range(WAY):
            members = [row for row, y in zip(g, Y.tolist(), strict=True) if y == k]
            wanted = sum(cosine(h, row) for row in members)
            assert found[place, k].item() == pytest.approx(wanted, rel=1e-10)


def test_full_context_embeddings_depend_on_the_order_of_the_support_set(randn) -> None:
    z, query = randn(7, SIZE), randn(5, SIZE)
    order = torch.tensor([6, 1, 2, 3, 4, 5, 0])
    for head in (Matching((SIZE,), WAY), MatchingFCE((SIZE,), WAY)):
        head.double()
        one = head.fit(z[None], Y[None], WAY)
        other = head.fit(z[order][None], Y[order][None], WAY)
        outputs = [
            torch.func.functional_call(head, {k: t[0] for k, t in own.items()}, (query,))
            for own in (one, other)
        ]
        assert torch.allclose(*outputs, rtol=1e-10) == isinstance(head, Matching)
