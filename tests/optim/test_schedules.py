"""Learning-rate schedules that a configuration names."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from alfa.config import compose
from alfa.errors import ConfigError
from alfa.optim import SCHEDULES


def rates(name: str, *, num: int = 6, **options: object) -> list[float]:
    """The learning rates of the first iterations, with a base rate of 2."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    scheduler = SCHEDULES.get(name)(**options)(optimizer)
    found = []
    for _ in range(num):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_a_constant_rate_stays() -> None:
    assert rates("constant") == [2.0] * 6


def test_a_step_multiplies_the_rate() -> None:
    assert rates("step", gamma=0.5, every=2) == [2.0, 2.0, 1.0, 1.0, 0.5, 0.5]


def test_a_cosine_is_that_of_torch_until_its_end_and_stays_there() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5, eta_min=0.2)
    expected = []
    for _ in range(6):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates("cosine", period=5, min_factor=0.1) == pytest.approx(expected)
    assert rates("cosine", period=2, num=4) == pytest.approx([2.0, 1.0, 0.0, 0.0])


def test_a_line_falls_until_its_end_and_stays_there() -> None:
    assert rates("linear", period=4) == pytest.approx([2.0, 1.5, 1.0, 0.5, 0.0, 0.0])
    assert rates("linear", period=2, min_factor=0.1, num=4) == pytest.approx([2.0, 1.1, 0.2, 0.2])


def test_a_rate_changes_at_its_milestones() -> None:
    options = {"milestones": [2, 3, 5], "factors": [0.5, 0.25, 1.5]}
    assert rates("piecewise", **options) == [2.0, 2.0, 1.0, 0.5, 0.5, 3.0]


@pytest.mark.parametrize(
    ("milestones", "factors", "message"),
    [
        ([5, 2], [0.1, 0.1], r"`milestones` must ascend, got \[5, 2\]\.$"),
        ([2, 2], [0.1, 0.1], r"`milestones` must ascend, got \[2, 2\]\.$"),
        ([2, 5], [0.1], r"one value for each of the 2 milestones, got \[0\.1\]\.$"),
    ],
)
def test_milestones_without_order_or_factors_are_rejected(milestones, factors, message) -> None:
    with pytest.raises(ConfigError, match=message):
        SCHEDULES.get("piecewise")(milestones=milestones, factors=factors)


@pytest.mark.parametrize("name", ["constant", "step", "piecewise", "cosine", "linear"])
def test_every_schedule_can_warm_up(name) -> None:
    plain, warm = rates(name), rates(name, warmup=4)
    assert warm[:4] == pytest.approx([r * n / 4 for r, n in zip(plain, range(1, 5), strict=False)])
    assert warm[4:] == plain[4:]


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_a_schedule_lasts_as_long_as_the_training_unless_told_otherwise(name) -> None:
    experiment = compose("sinusoid", overrides=[f"schedule.name={name}", "outer.num_iterations=70"])
    assert experiment.schedule.options["period"] == 70
    # The configuration of a run stores the period explicitly.
    assert math.isclose(SCHEDULES.get(name)(period=70).factor(35), 0.5)


def test_a_scheduler_of_a_program_cannot_be_rebuilt() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    with pytest.raises(ConfigError, match=r"its own scheduler \(mine\).* Trainer\.fit\.$"):
        SCHEDULES.get("custom")(description="mine")(optimizer)
