"""Every rule can be combined with a rate of each weight and with a direction."""

import dataclasses
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from alfa.inits import LearnedInit
from alfa.learner import adapt
from alfa.ops import _update, expand_to_parameters, mse
from alfa.rules import RULES, Rule
from alfa.testing import check_rule
from alfa.types import Params, Rates


class PerWeight(Rule):
    """Multiplies the learning rates of another rule by a learned factor of each weight."""

    def __init__(self, base: Rule) -> None:
        super().__init__(base.layers)
        self.base, self.uses_losses = base, base.uses_losses
        self.factor = nn.Parameter(torch.ones(sum(base.layers.sizes)))

    def rates(self, step, params, grads, state=(), **losses) -> Rates:
        rates = self.base.rates(step, params, grads, state, **losses)
        alpha = flat_rate(rates.alpha, params) * self.factor
        return dataclasses.replace(rates, alpha=Params(torch.atleast_2d(alpha), self.layers))


class Doubled(PerWeight):
    """Halves every learning rate, and doubles the direction of another rule."""

    def rates(self, step, params, grads, state=(), **losses) -> Rates:
        rates = super().rates(step, params, grads, state, **losses)
        direction = grads if rates.direction is None else rates.direction
        assert isinstance(rates.alpha, Params)
        halved = rates.alpha.like(rates.alpha.flat / 2)
        return dataclasses.replace(rates, alpha=halved, direction=grads.like(2 * direction.flat))


def flat_rate(rate: Tensor | Mapping[str, Tensor], params: Params) -> Tensor:
    """Return a rate as a tensor that broadcasts to [task, size]."""
    if isinstance(rate, Tensor):
        return expand_to_parameters(rate, params.layers)
    return torch.cat([values.flatten(1) for values in rate.values()], dim=1)


@pytest.fixture(params=["by a matrix", "by layer"])
def way(request, monkeypatch):
    """Select the implementation of updates that have a rate for each layer."""
    if request.param == "by layer":
        monkeypatch.setattr(_update, "_LARGEST_MATRIX", 0)


@pytest.mark.parametrize("wrap", [PerWeight, Doubled])
@pytest.mark.parametrize("name", list(RULES))
def test_the_combination_fulfills_the_contract(make_rule, name, wrap) -> None:
    check_rule(lambda layers, _: wrap(make_rule(name, layers)))


@pytest.mark.parametrize("wrap", [PerWeight, Doubled])
@pytest.mark.parametrize("name", list(RULES))
def test_factors_of_one_change_nothing(
    make_mlp, make_episode, make_rule, perturb, way, name, wrap
) -> None:
    model, episode = make_mlp(), make_episode(num_tasks=3)
    init = LearnedInit(model)
    base = perturb(make_rule(name, init.layers), 0.02)
    options = {"init": init, "loss": mse, "num_steps": 3}
    support = episode.support_x, episode.support_y
    rules = base, wrap(base).double()
    plain, combined = (adapt(model, *support, rule=rule, **options) for rule in rules)
    torch.testing.assert_close(plain.params.flat, combined.params.flat, rtol=0, atol=1e-12)
    parameters = [*model.parameters(), *base.parameters()]
    found = [torch.autograd.grad(a.params.flat.sin().sum(), parameters) for a in (plain, combined)]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", list(RULES))
def test_a_factor_of_zero_removes_the_step_of_its_weights(
    make_mlp, make_episode, make_rule, name
) -> None:
    model, episode = make_mlp(), make_episode(num_tasks=2)
    init = LearnedInit(model)
    rule = PerWeight(make_rule(name, init.layers)).double()
    is_still = torch.arange(len(rule.factor)) % 2 == 0
    with torch.no_grad():
        rule.factor[is_still] = 0
    adapted = adapt(
        model,
        episode.support_x,
        episode.support_y,
        init=init,
        rule=rule,
        loss=mse,
        num_steps=2,
    )
    # Without the step, only beta acts on a weight.
    theta = torch.cat([p.flatten() for p in model.parameters()]).expand(2, -1)
    for rates in adapted.rates:
        theta = flat_rate(rates.beta, adapted.params) * theta
    is_equal = (theta - adapted.params.flat).abs() < 1e-12
    assert bool(is_equal[:, is_still].all())
    # The gradient of a weight is 0 if its unit is never active.
    assert float(is_equal[:, ~is_still].double().mean()) < 0.5
