"""Checks of the rates that a rule returns, for given weights and gradients."""

import torch
from torch import Tensor

from alfa.errors import ConfigError
from alfa.ops import apply_rates
from alfa.rules import Rule
from alfa.types import Params, Rates, State


def check_form(rule: Rule, params: Params, grads: Params) -> None:
    """Check the shapes, types, and values of the rates at the first and the second step."""
    state: State = ()
    for step in range(2):
        rates = _call(rule, step, params, grads, state)
        assert isinstance(rates, Rates), f"`rates` must return Rates, not {type(rates).__name__}"
        assert isinstance(rates.state, tuple), (
            f"`state` must be a tuple of tensors, got {type(rates.state).__name__}; write "
            "state=(x,)"
        )
        try:
            apply_rates(params, grads, rates)
        except ConfigError as error:
            raise AssertionError(f"step {step}: {error}") from None
        for name, tensors in _values(rates).items():
            for values in tensors:
                assert values.dtype == torch.float64, (
                    f"{name} is {values.dtype}, but the weights are float64"
                )
                assert bool(values.isfinite().all()), f"{name} is not finite at step {step}"
        state = rates.state


def check_purity(rule: Rule, params: Params, grads: Params) -> None:
    """Check that the rates are a function of the inputs, and that the inputs do not change."""
    before = params.flat.clone(), grads.flat.clone()
    first = _call(rule, 0, params, grads)
    state = [None if part is None else part.clone() for part in first.state]
    _call(rule, 1, params, grads, first.state)
    again = _call(rule, 0, params, grads)
    assert torch.equal(params.flat, before[0]), "the rule changed its input, the parameters"
    assert torch.equal(grads.flat, before[1]), "the rule changed its input, the gradients"
    for part, copied in zip(first.state, state, strict=True):
        if part is not None and copied is not None:
            assert torch.equal(part, copied), "the rule changed its input, the state"
    _assert_equal(first, again, "is not a function of its inputs: a second call differs")


def check_losses(rule: Rule, params: Params, grads: Params) -> None:
    """Check that the rates depend on the support losses if the rule declares so."""
    if not rule.uses_losses:
        return
    found = [_values(_call(rule, 0, params, grads, scale=scale)) for scale in (1, 2)]
    same = [
        torch.equal(one, other)
        for name in found[0]
        for one, other in zip(found[0][name], found[1][name], strict=True)
    ]
    assert not all(same), "`uses_losses` is true, but the rates do not depend on the losses"


def check_saving(rule: Rule, other: Rule, params: Params, grads: Params) -> None:
    """Check that another rule gives the same rates once it has loaded the state of `rule`."""
    other.load_state_dict(rule.state_dict())
    saved, loaded = (
        _call(made, 1, params, grads, _call(made, 0, params, grads).state) for made in (rule, other)
    )
    _assert_equal(saved, loaded, "changes when the rule is saved and loaded")


def _call(
    rule: Rule, step: int, params: Params, grads: Params, state: State = (), *, scale: float = 1
) -> Rates:
    losses = scale * torch.arange(1.0, params.num_tasks + 1, dtype=params.flat.dtype)
    rates: Rates = rule(step, params, grads, state, losses=losses)
    return rates


def _values(rates: Rates) -> dict[str, list[Tensor]]:
    named = {"alpha": rates.alpha, "beta": rates.beta}
    values = {n: [r] if isinstance(r, Tensor) else list(r.values()) for n, r in named.items()}
    values["the direction"] = [] if rates.direction is None else [rates.direction.flat]
    return values


def _assert_equal(before: Rates, after: Rates, fault: str) -> None:
    others = _values(after)
    for name, tensors in _values(before).items():
        same = list(map(torch.equal, tensors, others[name]))
        assert len(tensors) == len(others[name]) == sum(same), f"{name} {fault}"
