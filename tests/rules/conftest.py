"""Fixtures that find how the rates of an adaptation are shared."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from alfa.inits import LearnedInit
from alfa.learner import Adapted, adapt
from alfa.ops import mse
from alfa.rules import Rule


@pytest.fixture
def run_rule(make_mlp, make_episode, perturb) -> Callable[..., Adapted]:
    """Three steps of a rule with perturbed meta-parameters on two tasks."""

    def run(make: Callable[..., Rule], **options) -> Adapted:
        model, episode = make_mlp(), make_episode()
        init = LearnedInit(model)
        rule = perturb(make(init.layers, num_steps=3, **options), 0.05)
        return adapt(
            model,
            episode.support_x,
            episode.support_y,
            init=init,
            rule=rule,
            loss=mse,
            num_steps=3,
        )

    return run


@pytest.fixture
def sharing() -> Callable[..., set[str]]:
    """Finds the dimensions (step, task, layer) over which the rates of an adaptation are equal."""

    def find(adapted: Adapted, name: str) -> set[str]:
        shape = (adapted.params.num_tasks, len(adapted.params))
        rates = torch.stack([getattr(rates, name).expand(shape) for rates in adapted.rates])
        return {
            dimension
            for axis, dimension in enumerate(["step", "task", "layer"])
            if all_same(rates.detach(), axis)
        }

    def all_same(rates: Tensor, axis: int) -> bool:
        same = rates == rates.narrow(axis, 0, 1)
        # Either all rates are equal or all differ.
        others = same.narrow(axis, 1, same.shape[axis] - 1)
        assert others.all() or not others.any()
        return bool(others.all())

    return find
