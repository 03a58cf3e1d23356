"""Every registered objective fulfills the contract, and broken ones fail."""

from dataclasses import replace

import pytest
import torch

from alfa.inits import LearnedInit
from alfa.objectives import OBJECTIVES, Objective, QueryLoss
from alfa.testing import check_objective

# Reptile trains adapted parameters only, so its inner loop also adapts the normalization layer.
INIT_OPTIONS: dict[str, dict[str, str]] = {"reptile": {"adapt": "*"}}


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_objective_fulfills_the_contract(name: str) -> None:
    options = {"num_steps": 3} if "num_steps" in OBJECTIVES.options(name) else {}
    check_objective(
        lambda: OBJECTIVES.get(name)(**options),
        make_init=lambda model: LearnedInit(model, **INIT_OPTIONS.get(name, {})),
    )


class OneLoss(QueryLoss):
    def forward(self, learner, episode, *, progress):
        outcome = learner(episode)
        return replace(outcome, objective=outcome.query_losses.mean())


class MixesTasks(QueryLoss):
    def forward(self, learner, episode, *, progress):
        outcome = learner(episode)
        return replace(outcome, objective=outcome.query_losses / episode.num_tasks)


class HidesProgress(QueryLoss):
    def forward(self, learner, episode, *, progress):
        outcome = learner(episode)
        return replace(outcome, objective=outcome.query_losses * (1 + progress))


class ChangesTheLearner(QueryLoss):
    def forward(self, learner, episode, *, progress):
        with torch.no_grad():
            next(learner.parameters()).add_(1)
        return learner(episode)


class Detached(QueryLoss):
    def forward(self, learner, episode, *, progress):
        outcome = learner(episode)
        return replace(outcome, objective=outcome.query_losses.detach())


class Random(QueryLoss):
    uses_progress = True

    def forward(self, learner, episode, *, progress):
        outcome = learner(episode)
        return replace(outcome, objective=outcome.query_losses * torch.rand(()))


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (OneLoss, r"`losses` must be \[task\]"),
        (MixesTasks, "another loss alone"),
        (HidesProgress, "uses_progress"),
        (ChangesTheLearner, r"changed \S*first.weight of the learner"),
        (Detached, "no gradient"),
        (Random, "second call"),
    ],
)
def test_a_broken_objective_fails(broken: type[Objective], fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        check_objective(broken)
