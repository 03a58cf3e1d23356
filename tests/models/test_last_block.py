"""The last block of a pretrained backbone, with adapted weights, FiLM, or LoRA."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import alfa.models._last_block as module
from alfa.errors import ConfigError
from alfa.inits import LearnedInit
from alfa.learner import Learner
from alfa.models import LastBlock
from alfa.ops import cross_entropy
from alfa.rules import ALFA

SHAPE = (6, 3, 3)
PARTS = ("weights", "film", "lora")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the pretrained block by a small random one."""
    generator = torch.Generator().manual_seed(0)

    def block() -> list[nn.Conv2d]:
        made = [
            nn.Conv2d(6, 12, 1),
            nn.Conv2d(12, 12, 3, padding=1, groups=12),
            nn.Conv2d(12, 8, 1),
            nn.Conv2d(8, 10, 1),
        ]
        for conv in made:
            nn.init.normal_(conv.weight, generator=generator)
            nn.init.normal_(conv.bias, generator=generator)
        generator.manual_seed(0)
        return [conv.requires_grad_(False) for conv in made]

    monkeypatch.setattr(module, "LAST_BLOCK_SHAPE", SHAPE)
    monkeypatch.setattr(module, "last_block", block)


def make(part: str, **options: int) -> LastBlock:
    generator = torch.Generator().manual_seed(1)
    model = LastBlock((math.prod(SHAPE),), 3, part=part, generator=generator, **options)
    # A has used random numbers, too.
    nn.init.eye_(model.linear.weight)
    return model.double()


def parameters(model: LastBlock) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in model.named_parameters() if "linear" not in name}


def test_all_parts_start_at_the_pretrained_network(randn) -> None:
    x = randn(4, math.prod(SHAPE))
    outputs = [make(part)(x) for part in PARTS]
    torch.testing.assert_close(outputs[1], outputs[0])
    torch.testing.assert_close(outputs[2], outputs[0])
    names = [{name.split(".")[-1] for name in parameters(make(part))} for part in PARTS]
    assert names == [{"weight", "bias"}, {"gamma", "beta"}, {"a", "b"}]


def test_film_scales_and_shifts_the_outputs_of_convolutions(randn) -> None:
    film, whole = make("film"), make("weights")
    with torch.no_grad():
        for own, conv in zip(film.convs, whole.convs, strict=True):
            own.gamma.copy_(randn(len(own.gamma)))
            own.beta.copy_(randn(len(own.beta)))
            conv.weight.mul_((1 + own.gamma).view(-1, 1, 1, 1))
            conv.bias.mul_(1 + own.gamma).add_(own.beta)
    x = randn(4, math.prod(SHAPE))
    torch.testing.assert_close(film(x), whole(x))


def test_lora_adds_matrices_of_low_rank(randn) -> None:
    lora, whole = make("lora", rank=2), make("weights")
    with torch.no_grad():
        for own, conv in zip(lora.convs, whole.convs, strict=True):
            if conv.groups == 1:
                own.b.copy_(randn(*own.b.shape))
                added = own.b[:, :, 0, 0] @ own.a[:, :, 0, 0]
                assert torch.linalg.matrix_rank(added) == 2
                conv.weight.add_(added[:, :, None, None])
    x = randn(4, math.prod(SHAPE))
    torch.testing.assert_close(lora(x), whole(x))


@pytest.mark.parametrize("part", ["film", "lora"])
def test_checkpoints_do_not_contain_the_constant_weights(part: str) -> None:
    model = make(part)
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("part", PARTS)
def test_tasks_adapt_the_block(randn, part: str) -> None:
    """Every parameter of the block has a step of its own and an outer gradient."""
    model = make(part)
    init = LearnedInit(model)
    rule = ALFA(init.layers, num_steps=2)
    learner = Learner(model, init=init, rule=rule, loss=cross_entropy, num_steps=2).double()
    x, y = randn(2, 6, math.prod(SHAPE)), torch.arange(6).expand(2, -1) % 3
    adapted = learner.adapt(x, y)
    for name, start in parameters(model).items():
        moved = [(adapted.params[name][task] - start).abs().max() for task in range(2)]
        assert min(moved) > 0, name
        assert not torch.equal(adapted.params[name][0], adapted.params[name][1])
    adapted.predict(x).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().sum()) > 0, name


def test_other_inputs_and_options_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"'efficientnet-lite0-body', but .* \(1280,\); set"):
        LastBlock((1280,), 5)
    with pytest.raises(
        ConfigError, match="`part` is 'last', which is not one of 'weights', 'film', 'lora'"
    ):
        make("last")
    with pytest.raises(ConfigError, match="`rank` must be at least 1, got 0"):
        make("lora", rank=0)
