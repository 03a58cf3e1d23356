"""The cosine classifier that SGD trains on every support set."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from alfa.errors import ConfigError
from alfa.models import CosineSGDHead
from alfa.models._call import call


class Plain(nn.Module):
    """The same classifier with torch's weight normalization."""

    def __init__(self, vectors, scale) -> None:
        super().__init__()
        linear = nn.Linear(vectors.shape[1], len(vectors), bias=False).double()
        with torch.no_grad():
            linear.weight.copy_(vectors)
        self.linear, self.scale = weight_norm(linear, dim=0), scale

    def forward(self, z):
        return self.scale * self.linear(z / (z.norm(dim=1, keepdim=True) + 1e-5))


@pytest.mark.parametrize(("way", "num_support"), [(5, 5), (3, 14)])
def test_fitting_equals_a_plain_loop_of_torchs_sgd(randn, way, num_support) -> None:
    z, y = 4 * randn(2, num_support, 7), torch.arange(num_support).expand(2, -1) % way
    options = {"num_epochs": 6, "learning_rate": 0.2, "weight_decay": 0.01, "dampening": 0.8}
    # The saved seed decides, not that of the weights.
    head = CosineSGDHead((7,), 9, scale=3.0, generator=torch.Generator().manual_seed(3), **options)
    head.double()
    found = head.fit(z, y, way)
    queries = randn(2, 4, 7)
    for task in range(2):
        generator = torch.Generator().manual_seed(int(head.seed))
        start = torch.empty(way, 7).uniform_(-(7**-0.5), 7**-0.5, generator=generator).double()
        model = Plain(start, 3.0)
        optimizer = torch.optim.SGD(
            model.parameters(), lr=0.2, momentum=0.9, dampening=0.8, weight_decay=0.01
        )
        for _ in range(6):
            order = torch.randperm(num_support, generator=generator)
            for first in range(0, num_support, 4):
                batch = order[first : first + 4]
                optimizer.zero_grad()
                F.cross_entropy(model(z[task, batch]), y[task, batch]).backward()
                optimizer.step()
        own = {name: tensor[task] for name, tensor in found.items()}
        torch.testing.assert_close(call(head, own, queries[task]), model(queries[task]))


def test_a_saved_head_fits_the_same_weights(randn) -> None:
    z, y = randn(1, 6, 3), torch.arange(6)[None] % 3
    one, other = (CosineSGDHead((3,), 3, num_epochs=3).double() for _ in range(2))
    assert not torch.equal(one.fit(z, y, 3)["vectors"], other.fit(z, y, 3)["vectors"])
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.fit(z, y, 3)["vectors"], other.fit(z, y, 3)["vectors"])


def test_the_outer_gradient_equals_finite_differences(randn) -> None:
    head = CosineSGDHead((3,), 3, num_epochs=2, learning_rate=0.3).double()
    z, y = randn(2, 6, 3).requires_grad_(), torch.arange(6).expand(2, -1) % 3
    assert torch.autograd.gradcheck(lambda z: tuple(head.fit(z, y, 3).values()), z)


def test_faults_are_errors() -> None:
    with pytest.raises(ConfigError, match="`batch_size` must be at least 1, got 0"):
        CosineSGDHead((3,), 3, batch_size=0)
