"""Every registered rule fulfills the contract, and every rule is registered."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import alfa.rules
from alfa.rules import ALFA, RULES, SGD, Constant, Generated, Learned, Rule
from alfa.testing import check_rule
from alfa.types import Layers, Params, Rates, State

OPTIONS: dict[str, list[dict[str, object]]] = {
    "adam": [{}, {"beta1": 0.0}, {"learning_rate": 0.1, "beta2": 0.5, "eps": 0.1}],
    "proximal": [{}, {"learning_rate": 0.1, "strength": 0.5}],
    "sgd": [{}, {"learning_rate": 0.1, "weight_decay": 0.5}],
    "learned": [
        {},
        {"alpha": Learned(per_layer=False), "beta": Constant(1.0)},
        {"per_parameter_decay": True, "decay_start": 0.01},
        {"beta_form": "factor", "beta": Learned(per_step=False)},
    ],
    "alfa": [
        *[dict(preset) for preset in ALFA.presets.values()],
        {"alpha": Generated(per_step=False), "beta": Generated(per_layer=False)},
        {"alpha": Constant(0.01), "per_parameter_decay": True, "decay_start": 0.01},
        {"beta": Constant(1.0), "state": ("weights",)},
        {"state": ("gradients",), "state_gradient": "full"},
    ],
    "meta-sgd": [{}, {"start": 0.5}],
    "momentum": [{}, {"dampening": 0.5}, {"momentum": 0.5, "nesterov": True}],
    "meta-curvature": [{}, {"learning_rate": 0.3}],
    "meta-lstm": [{}, {"num_units": 3}],
}

CASES = [(name, options) for name in RULES for options in OPTIONS.get(name, [{}])]


def make(name: str, options: dict[str, object]) -> Callable[[Layers, int], Rule]:
    def make_rule(layers: Layers, num_steps: int) -> Rule:
        known = RULES.options(name)
        filled = {"num_steps": num_steps} if "num_steps" in known else {}
        return RULES.get(name)(layers, **filled, **options)

    return make_rule


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda value: str(value))
def test_rule_fulfills_the_contract(name: str, options: dict[str, object]) -> None:
    check_rule(make(name, options))


def test_every_rule_of_the_package_is_registered() -> None:
    registered = {RULES.get(name) for name in RULES}
    for module in pkgutil.iter_modules(alfa.rules.__path__, "alfa.rules."):
        for _, part in inspect.getmembers(__import__(module.name, fromlist=["x"]), inspect.isclass):
            if issubclass(part, Rule) and not inspect.isabstract(part):
                assert part in registered, f"{part.__name__} is not registered"


class _Valid(Rule):
    """A valid rule, which each subclass breaks in one way."""

    def __init__(self, layers: Layers) -> None:
        super().__init__(layers)
        self.log_alpha = torch.nn.Parameter(torch.full((len(layers),), -3.0))

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        return Rates(self.log_alpha.exp(), params.flat.new_ones(()))


class MixesTasks(_Valid):
    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        return Rates(self.log_alpha.exp() * grads.flat.abs().mean(), params.flat.new_ones(()))


class Remembers(_Valid):
    calls = 0

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        self.calls += 1
        return Rates(self.log_alpha.exp() / self.calls, params.flat.new_ones(()))


class ChangesItsInput(_Valid):
    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        with torch.no_grad():
            grads.flat.mul_(0.5)
        return super().rates(step, params, grads, state)


class WrongShape(_Valid):
    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        return Rates(self.log_alpha.exp()[:-1], params.flat.new_ones(()))


class SinglePrecision(_Valid):
    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        return Rates(self.log_alpha.exp().float(), params.flat.new_ones(()))


class DeadParameter(_Valid):
    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        return Rates(self.log_alpha.exp().detach(), params.flat.new_ones(()))


class FailsLater(_Valid):
    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        alpha = self.log_alpha.exp()
        return Rates(alpha if step < 3 else alpha / 0, params.flat.new_ones(()))


class LosesState(_Valid):
    def __init__(self, layers: Layers) -> None:
        super().__init__(layers)
        self.factor = float(torch.rand(()))

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        return Rates(self.log_alpha.exp() * self.factor, params.flat.new_ones(()))


class Pair(_Valid):
    def rates(self, step: int, params: Params, grads: Params, state: State = ()):
        return self.log_alpha.exp(), params.flat.new_ones(())


class Recalls(_Valid):
    """A valid rule that uses its state from the second step on."""

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        alpha = self.log_alpha.exp()
        if step > 0:
            alpha = (alpha + state[0]) / 2
        return Rates(alpha, params.flat.new_ones(()), state=(alpha,))


class Directed(_Valid):
    """A valid rule with a direction, which each subclass breaks in one way."""

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        rates = super().rates(step, params, grads)
        direction = self.direction(grads, *state)
        return replace(rates, direction=direction, state=(direction.flat,))

    def direction(self, grads: Params, previous: Tensor | None = None) -> Params:
        return grads if previous is None else grads.like(0.5 * previous + grads.flat)


class UsesLosses(_Valid):
    """A valid rule whose rates depend on the support losses."""

    uses_losses = True

    def rates(self, step, params, grads, state=(), *, losses=None) -> Rates:
        return Rates(self.log_alpha.exp() * losses.unsqueeze(1), params.flat.new_ones(()))


class OtherOrder(Directed):
    def direction(self, grads: Params, previous: Tensor | None = None) -> Params:
        return Params.of(dict(reversed(list(grads.items()))))


class MissingLayer(Directed):
    def direction(self, grads: Params, previous: Tensor | None = None) -> Params:
        return Params.of(dict(list(grads.items())[1:]))


class OneDirection(Directed):
    def direction(self, grads: Params, previous: Tensor | None = None) -> Params:
        return grads.like(grads.flat[:1])


class OneDirectionLater(Directed):
    def direction(self, grads: Params, previous: Tensor | None = None) -> Params:
        return grads if previous is None else grads.like(grads.flat[:1])


class DirectionInSinglePrecision(Directed):
    def direction(self, grads: Params, previous: Tensor | None = None) -> Params:
        return grads.like(grads.flat.float())


class ZeroByZero(Directed):
    def direction(self, grads: Params, previous: Tensor | None = None) -> Params:
        # A gradient that does not change gives 0 / 0.
        if previous is None:
            return grads
        change = grads.flat - previous
        return grads.like(change / change)


class ChangesTheGradient(Directed):
    def direction(self, grads: Params, previous: Tensor | None = None) -> Params:
        with torch.no_grad():
            return grads.like(grads.flat.clamp_(-1, 1))


class ChangesItsState(Directed):
    def direction(self, grads: Params, previous: Tensor | None = None) -> Params:
        if previous is None:
            return grads.like(grads.flat.clone())
        return grads.like(previous.mul_(0.5).add_(grads.flat))


class RandomDirection(Directed):
    def direction(self, grads: Params, previous: Tensor | None = None) -> Params:
        return grads.like(grads.flat + torch.rand(()))


class MixesTasksInDirection(Directed):
    def direction(self, grads: Params, previous: Tensor | None = None) -> Params:
        return grads.like(grads.flat / grads.flat.norm())


class StateIsATensor(_Valid):
    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        return replace(super().rates(step, params, grads), state=grads.flat)


class IgnoresLosses(UsesLosses):
    def rates(self, step, params, grads, state=(), *, losses=None) -> Rates:
        return Rates(self.log_alpha.exp(), params.flat.new_ones(()))


class MixesLosses(UsesLosses):
    def rates(self, step, params, grads, state=(), *, losses=None) -> Rates:
        return super().rates(step, params, grads, losses=losses.mean().expand_as(losses))


@pytest.mark.parametrize("rule", [_Valid, Recalls, Directed, UsesLosses])
def test_valid_rules_pass(rule: type[_Valid]) -> None:
    check_rule(lambda layers, num_steps: rule(layers))


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (MixesTasks, "differently alone"),
        (Remembers, "not a function of its inputs"),
        (ChangesItsInput, "changed its input, the gradients"),
        (WrongShape, "does not broadcast"),
        (SinglePrecision, "float64"),
        (DeadParameter, "no gradient"),
        (FailsLater, "more steps"),
        (LosesState, "saved and loaded"),
        (OtherOrder, "the direction must be a Params with the layers"),
        (MissingLayer, "the direction must be a Params with the layers"),
        (OneDirection, r"step 0: the direction must .* values \[\d, .*, got .* with \[1, "),
        (OneDirectionLater, r"step 1: the direction must .* values \[\d, .*, got .* with \[1, "),
        (DirectionInSinglePrecision, "the direction is torch.float32, but the weights are float64"),
        (ZeroByZero, "the direction is not finite at step 1"),
        (ChangesTheGradient, "changed its input, the gradients"),
        (ChangesItsState, "changed its input, the state"),
        (RandomDirection, "the direction is not a function of its inputs"),
        (MixesTasksInDirection, "differently alone"),
        (StateIsATensor, r"`state` must be a tuple .* got Tensor; write state=\(x,\)"),
        (IgnoresLosses, "do not depend on the losses"),
        (MixesLosses, "differently alone"),
        (Pair, "`rates` must return Rates, not tuple"),
    ],
)
def test_a_broken_rule_fails(broken: type[_Valid], fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        check_rule(lambda layers, num_steps: broken(layers))


class _Frozen(SGD):
    """A rule with a part that is not trained."""

    def __init__(self, layers: Mapping[str, torch.Size]) -> None:
        super().__init__(layers)
        self.fixed = nn.Linear(2, 2).requires_grad_(False)


def test_a_rule_may_have_a_part_that_is_not_trained() -> None:
    check_rule(lambda layers, num_steps: _Frozen(layers))
