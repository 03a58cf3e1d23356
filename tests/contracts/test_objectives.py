"""Every registered objective fulfills the contract, and broken ones fail."""

from dataclasses import replace

import pytest
import torch

from alfa.inits import LatentHead, LearnedInit, PrototypeHead
from alfa.objectives import OBJECTIVES, CoTraining, LatentPenalties, Objective, QueryLoss
from alfa.testing import check_objective

# Reptile trains adapted parameters only, so its inner loop also adapts the normalization layer.
INIT_OPTIONS: dict[str, dict[str, str]] = {"reptile": {"adapt": "*"}}
# These need class labels, and one of them a certain init; see below.
_CLASSIFICATION = ("co-training", "latent-penalties")


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name not in _CLASSIFICATION])
def test_objective_fulfills_the_contract(name: str) -> None:
    options = {"num_steps": 3} if "num_steps" in OBJECTIVES.options(name) else {}
    check_objective(
        lambda: OBJECTIVES.get(name)(**options),
        make_init=lambda model: LearnedInit(model, **INIT_OPTIONS.get(name, {})),
    )


def test_co_training_fulfills_the_contract() -> None:
    def make() -> CoTraining:
        objective = CoTraining(num_features=4, num_classes=9)
        torch.nn.init.normal_(objective.weight, generator=torch.Generator().manual_seed(0))
        return objective

    check_objective(make, make_init=PrototypeHead)


def test_latent_penalties_fulfill_the_contract() -> None:
    check_objective(LatentPenalties, make_init=lambda model: LatentHead(model, num_latents=3))


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
