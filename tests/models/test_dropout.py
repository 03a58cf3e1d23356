"""Dropout and DropBlock: their masks, their derivatives, and when they are active."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from alfa.data import Images
from alfa.errors import ConfigError
from alfa.evaluation import seeded, without_dropout
from alfa.inits import LearnedInit
from alfa.learner import Learner, adapt
from alfa.models import DropBlock, Dropout, WideResNet, WideResNet12
from alfa.ops import cross_entropy
from alfa.rules import SGD
from alfa.runs import Run
from alfa.training import Trainer
from alfa.types import Episode

IMAGES = torch.ones(50, 9, 8, 3 * 4)  # three tasks of four channels

MODELS = {
    "resnet12": lambda: WideResNet12((2, 16, 16), 3, filters=[3, 4, 5, 6], dropout=0.3),
    "wrn": lambda: WideResNet((2, 8, 8), 3, depth=10, width=1, dropout=0.4),
}


def make(name: str) -> tuple[nn.Module, Episode]:
    torch.manual_seed(0)
    model = MODELS[name]().double()
    size = 16 if name == "resnet12" else 8
    x, y = torch.randn(2, 12, 2, size, size).double(), torch.arange(3).repeat(4).expand(2, -1)
    return model, Episode(x[:, :6], y[:, :6], x[:, 6:], y[:, 6:])


def learner(model: nn.Module, **options) -> Learner:
    init = LearnedInit(model)
    rule = SGD(init.layers, learning_rate=0.1)
    return Learner(model, init=init, rule=rule, loss=cross_entropy, num_steps=2, **options)


def meta_gradients(model: nn.Module, episode: Episode, **options) -> list[Tensor]:
    made = learner(model, **options)
    torch.manual_seed(3)
    outcome = made(episode)
    loss = outcome.query_losses.mean()
    return [loss, outcome.outputs, *torch.autograd.grad(loss, list(made.meta_parameters()))]


# Masks


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(0)
    mask = Dropout(0.25).draw(IMAGES, 3)
    assert mask.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert float((mask == 0).float().mean()) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_drop_block_drops_about_a_fraction_p(size: int) -> None:
    torch.manual_seed(0)
    mask = DropBlock(0.1, size).draw(IMAGES.expand(50, 9, 8, 12).repeat(10, 1, 1, 1), 3)
    assert float((mask == 0).float().mean()) == pytest.approx(0.1, abs=0.025)
    # The mean of each task is kept exactly.
    means = mask.unflatten(3, (3, 4)).mean((0, 1, 2, 4))
    torch.testing.assert_close(means, torch.ones(3))


def test_drop_block_drops_squares() -> None:
    torch.manual_seed(1)
    mask = DropBlock(0.1, 3).draw(IMAGES, 3)
    dropped = (mask == 0).permute(0, 3, 1, 2).flatten(0, 1)
    assert dropped.any()
    for image in dropped[dropped.flatten(1).any(1)][:40]:
        # Every dropped value belongs to a dropped square, by a search over all squares.
        covered = torch.zeros_like(image)
        for row in range(9 - 2):
            for column in range(8 - 2):
                square = image[row : row + 3, column : column + 3]
                covered[row : row + 3, column : column + 3] |= square.all()
        assert covered.equal(image)


def test_squares_are_cropped_to_small_maps() -> None:
    torch.manual_seed(0)
    mask = DropBlock(0.2, 5).draw(torch.ones(500, 2, 3, 6), 2)
    maps = (mask == 0).permute(0, 3, 1, 2).flatten(2)
    assert (maps.all(2) | ~maps.any(2)).all()
    assert float(maps.float().mean()) == pytest.approx(0.2, abs=0.03)


def test_a_task_without_a_remaining_value_is_finite() -> None:
    mask = DropBlock(1.0, 2).draw(torch.ones(2, 2, 2, 4), 2)
    assert mask.equal(torch.zeros(2, 2, 2, 4))


def test_there_is_no_mask_in_evaluation_mode() -> None:
    assert Dropout(0.5).eval().draw(IMAGES, 3) is None
    assert DropBlock(0.5, 2).eval().draw(IMAGES, 3) is None


# Derivatives; test_wide.py and test_wide_resnet12.py compare them with plain torch.


@pytest.mark.parametrize("name", MODELS)
def test_recomputing_draws_the_same_numbers(name: str) -> None:
    model, episode = make(name)
    stored = meta_gradients(model, episode, over_tasks="loop")
    recomputed = meta_gradients(model, episode, over_tasks="loop", memory="recompute")
    for left, right in zip(stored, recomputed, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_is_that_of_the_drawn_masks(name: str) -> None:
    """Compare with a finite difference at the same seed; a larger step would cross kinks."""
    model, episode = make(name)
    made = learner(model, over_tasks="stack")

    def loss() -> Tensor:
        torch.manual_seed(3)
        return made(episode).query_losses.mean()

    gradients = torch.autograd.grad(loss(), list(made.meta_parameters()))
    directions = [torch.randn_like(p) for p in made.meta_parameters()]
    expected = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    with torch.no_grad():
        sides = []
        for sign in (1, -2):
            for p, d in zip(made.meta_parameters(), directions, strict=True):
                p.add_(sign * 1e-8 * d)
            sides.append(loss())
    torch.testing.assert_close((sides[0] - sides[1]) / 2e-8, expected, rtol=1e-4, atol=1e-5)


# When dropout is active


@pytest.mark.parametrize("name", MODELS)
def test_dropout_is_active_in_training_only(name: str) -> None:
    model, episode = make(name)
    x = episode.query_x[0]
    assert not model(x).equal(model(x))
    with without_dropout(model):
        assert model(x).equal(model(x))
    made = learner(model)
    assert not made.train()(episode).outputs.equal(made(episode).outputs)
    made.eval()
    assert made(episode).outputs.equal(made(episode).outputs)


@pytest.mark.parametrize("name", MODELS)
def test_dropout_draws_from_the_seeded_state(name: str) -> None:
    model, episode = make(name)
    outputs = []
    for seed in (1, 1, 2):
        with seeded(model, seed):
            outputs.append(model(episode.query_x[0]))
    assert outputs[0].equal(outputs[1])
    assert not outputs[0].equal(outputs[2])


@pytest.mark.parametrize("name", MODELS)
def test_a_copy_has_a_mode_of_its_own(name: str) -> None:
    model, episode = make(name)
    twin = copy.deepcopy(model).eval()
    x = episode.query_x[0]
    assert twin(x).equal(twin(x))
    assert not model(x).equal(model(x))


@pytest.mark.parametrize("name", MODELS)
def test_a_frozen_model_has_no_dropout(name: str) -> None:
    model, episode = make(name)
    init = LearnedInit(model)
    with without_dropout(model):
        adapted = adapt(
            model,
            episode.support_x,
            episode.support_y,
            init=init,
            rule=SGD(init.layers),
            loss=cross_entropy,
            batch_norm="inductive",
            order="none",
        )
        expected = adapted.predict(episode.query_x)
    # Dropout is active again, but not in the frozen model.
    frozen = adapted.frozen(episode.support_x[1], task=1)
    torch.testing.assert_close(frozen(episode.query_x[1]), expected[1], rtol=1e-9, atol=1e-9)


def test_without_dropout_a_model_draws_nothing() -> None:
    model = WideResNet12((2, 16, 16), 3, filters=[3, 4, 5, 6], dropout=0.0)
    assert not any(isinstance(module, Dropout) for module in model.modules())
    state = torch.get_rng_state()
    model(torch.zeros(4, 2, 16, 16))
    assert torch.get_rng_state().equal(state)


@pytest.mark.parametrize("probability", [-0.1, 1.0])
def test_invalid_probabilities_are_rejected(probability: float) -> None:
    for make_model in (WideResNet12, WideResNet):
        with pytest.raises(ConfigError, match="`dropout` must be at least 0 and less than 1, got"):
            make_model((3, 16, 16), 5, dropout=probability)


def test_training_with_dropout_resumes_to_the_same_numbers(tmp_path) -> None:
    def train(folder: str, num_iterations: int, *, resume: bool = False) -> dict:
        tasks = Images(dataset="strokes", size=16, way=3, shot=1, num_query=2)
        generator = torch.Generator().manual_seed(0)
        options = {"filters": [2, 3, 4, 5], "dropout": 0.3, "block_size": 2}
        model = WideResNet12(tasks.input_shape, 3, generator=generator, **options)
        small = {"validate_every": 2, "num_val_tasks": 2, "num_test_tasks": 2, "num_tasks": 1}
        trainer = Trainer(learner(model), tasks, num_iterations=num_iterations, **small)
        return trainer.fit(tmp_path / folder, resume=resume)

    whole = train("whole", 4)
    train("parts", 2)
    assert train("parts", 4, resume=True)["test"] == whole["test"]
    assert Run.open(tmp_path / "parts").metrics == Run.open(tmp_path / "whole").metrics
