"""The base class of the models."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alfa.errors import ConfigError
from alfa.inits import LearnedInit
from alfa.learner import adapt
from alfa.models import MLP, Model
from alfa.ops import mse
from alfa.rules import SGD


def test_overriding_forward_alone_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"^Halved overrides `forward`, but .* `stacked`"):

        class Halved(MLP):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x) / 2


class _Silent:
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x)


def test_inheriting_another_forward_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"^Silenced overrides `forward`"):
        type("Silenced", (_Silent, MLP), {})


def test_an_abstract_subclass_may_override_forward() -> None:
    class Base(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    class Identity(Base):
        def stacked(self, params, x, mode=None):
            return x

    assert torch.equal(Identity()(torch.ones(2)), torch.ones(2))


def test_forward_and_stacked_can_be_overridden() -> None:
    class Halved(MLP):
        def stacked(self, params, x, mode=None):
            return super().stacked(params, x) / 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    model = Halved((1,), 1, hidden=[4])
    x = torch.randn(3, 1)
    assert torch.equal(model(x), MLP.stacked(model, _rows(model), x[None])[0] / 2)


def test_a_module_with_a_model_inside_runs_its_own_forward() -> None:
    class Halved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = MLP((1,), 1, hidden=[4])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inside(x) / 2

    model, x = Halved(), torch.randn(2, 3, 1)
    init = LearnedInit(model)
    adapted = adapt(model, x, x, init=init, rule=SGD(init.layers), loss=mse, num_steps=0)
    torch.testing.assert_close(adapted.predict(x)[1], model(x[1]))


def _rows(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter[None] for name, parameter in model.named_parameters()}
