"""If tasks adapt only the last layer, the other layers run once, with the same results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import alfa.learner._loop as loop
from alfa.inits import LearnedInit, PrototypeHead
from alfa.learner import Learner
from alfa.learner._last_layer import last_layer_of
from alfa.models import MLP, Conv4, FeatureMap, Headed, LogisticHead, ResNet12
from alfa.ops import cross_entropy
from alfa.rules import ALFA

MODELS = {
    "conv4": (lambda: Conv4((2, 16, 16), 3, filters=4), (2, 16, 16)),
    "resnet12": (lambda: ResNet12((2, 16, 16), 3, filters=[4, 5, 6, 7]), (2, 16, 16)),
    "mlp": (lambda: MLP((6,), 3, hidden=[5, 4]), (6,)),
    "features": (lambda: FeatureMap((6,), 3), (6,)),
}


def outcome(model: nn.Module, shape: tuple[int, ...], **options: Any) -> dict[str, Tensor]:
    """Return everything that the inner loop determines, and the outer gradient."""
    torch.manual_seed(0)
    make_init = options.pop("init", LearnedInit)
    adapted_names = options.pop("adapt", ["linear*"])
    init = make_init(model, adapt=adapted_names)
    rule = ALFA(init.layers, num_steps=3, generator=torch.Generator().manual_seed(1))
    learner = Learner(model, init=init, rule=rule, loss=cross_entropy, num_steps=3, **options)
    learner = learner.double()
    x = torch.randn(2, 6, *shape, dtype=torch.float64)
    y = (torch.arange(6) % 3).expand(2, -1)
    adapted = learner.adapt(x, y)
    outputs = adapted.predict(torch.randn(2, 5, *shape, dtype=torch.float64))
    found = {"losses": adapted.support_losses, "outputs": outputs, "flat": adapted.params.flat}
    if outputs.requires_grad:
        trained = [p for p in learner.meta_parameters() if p.requires_grad]
        grads = torch.autograd.grad(outputs.square().sum(), trained, allow_unused=True)
        found |= {f"grad {n}": g for n, g in enumerate(grads) if g is not None}
    return {name: tensor.detach() for name, tensor in found.items()}


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch):
    """Compares the results with those of an inner loop that runs the whole model."""

    def run(name: str, **options: Any) -> None:
        make, shape = MODELS[name]
        torch.manual_seed(2)
        model = make()
        last = f"{model.head_name}*" if options.get("init") is None else None
        options.setdefault("adapt", [last] if last else model.head_name)
        found = outcome(model, shape, **options)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "last_layer_of", lambda *_: None)
            expected = outcome(model, shape, **options)
        assert found.keys() == expected.keys()
        for key, tensor in expected.items():
            torch.testing.assert_close(found[key], tensor, rtol=1e-9, atol=1e-11, msg=key)

    return run


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("order", ["second", "first", "none"])
def test_results_and_gradients_are_the_same(compare, name: str, order: str) -> None:
    compare(name, order=order)


@pytest.mark.parametrize(
    "options",
    [
        {"memory": "recompute"},
        {"over_tasks": "loop"},
        {"batch_norm": "inductive"},
        {"adapt": ["linear.weight"]},
        {"batch_size": 2},
    ],
    ids=str,
)
def test_options_change_nothing(compare, options: dict[str, Any]) -> None:
    compare("conv4", **options)


@pytest.mark.parametrize("order", ["second", "first"])
def test_inits_that_embed_the_support_set_share_the_features(compare, order: str) -> None:
    compare("conv4", init=PrototypeHead, adapt="head", order=order)


def test_the_body_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"embedded": 0, "stacked": 0}
    for name in counts:
        plain = getattr(Conv4, name)

        def counted(self: Any, *args: Any, plain: Any = plain, name: str = name) -> Tensor:
            counts[name] += 1
            return plain(self, *args)

        monkeypatch.setattr(Conv4, name, counted, raising=False)
    make, shape = MODELS["conv4"]
    # The counting methods belong to another class, so `classify` must, too.
    monkeypatch.setattr(Conv4, "classify", Conv4.classify, raising=False)
    outcome(make(), shape)
    # `stacked` predicts the queries.
    assert counts == {"embedded": 1, "stacked": 1}


class Halved(Conv4):
    """Its outputs are not those of the last layer."""

    def stacked(self, params: Mapping[str, Tensor], x: Tensor, *args: Any) -> Tensor:
        return super().stacked(params, x, *args) / 2


def test_models_that_do_more_run_whole() -> None:
    layers = LearnedInit(Conv4((2, 16, 16), 3, filters=4), adapt=["linear*"]).layers
    assert last_layer_of(Conv4((2, 16, 16), 3, filters=4), layers) is not None
    assert last_layer_of(Halved((2, 16, 16), 3, filters=4), layers) is None
    assert last_layer_of(nn.Linear(3, 3), layers) is None
    headed = Headed(MLP((6,), 3, hidden=[4]), LogisticHead((4,), 3))
    assert last_layer_of(headed, layers) is None
    whole = LearnedInit(Conv4((2, 16, 16), 3, filters=4)).layers
    assert last_layer_of(Conv4((2, 16, 16), 3, filters=4), whole) is None
    dropping = ResNet12((2, 16, 16), 3, filters=[4, 4, 4, 4])
    dropping.add_module("drop", nn.Dropout(0.5))
    assert last_layer_of(dropping, layers) is None
    assert last_layer_of(dropping.eval(), layers) is not None
