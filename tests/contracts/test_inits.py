"""Every registered init fulfills the contract, and every init is registered."""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
from functools import partial

import pytest
import torch
from torch import nn

import alfa.inits
from alfa.inits import INITS, Attenuated, FixedInit, Init, LearnedInit, PrototypeHead, Support
from alfa.testing import check_init
from alfa.types import Params


def variants(name: str) -> list:
    if INITS.wraps(name, "init"):

        def make(inner, model):
            # With other seeds, a unit of the network could be dead on these few tasks.
            context = {"generator": torch.Generator().manual_seed(2), "num_steps": 3}
            known = INITS.options(name)
            filled = {key: value for key, value in context.items() if key in known}
            return INITS.get(name)(inner(model), **filled)

        return [partial(make, inner) for inner in (LearnedInit, FixedInit, PrototypeHead)]
    part = INITS.get(name)
    return [
        part,
        lambda model: part(model, adapt=["second.*"]),
        lambda model: part(model, adapt=["*"]),
    ]


# `check_head` checks the init of a model with a head of its own.
@pytest.mark.parametrize("name", [name for name in INITS if name != "task-head"])
@pytest.mark.parametrize("variant", [0, 1, 2])
def test_init_fulfills_the_contract(name: str, variant: int) -> None:
    check_init(variants(name)[variant])


def test_every_init_of_the_package_is_registered() -> None:
    registered = {INITS.get(name) for name in INITS}
    for module in pkgutil.iter_modules(alfa.inits.__path__, "alfa.inits."):
        for _, part in inspect.getmembers(__import__(module.name, fromlist=["x"]), inspect.isclass):
            if issubclass(part, Init) and not inspect.isabstract(part):
                assert part in registered, f"{part.__name__} is not registered"


class RandomEachTime(LearnedInit):
    def start(self, support: Support) -> Params:
        start = super().start(support)
        return start.like(start.flat + torch.rand(()))


class OneForAll(LearnedInit):
    def start(self, support: Support) -> Params:
        return super().start(dataclasses.replace(support, x=support.x[:1]))


class MixesTasks(Attenuated):
    def start(self, support: Support) -> Params:
        start = super().start(support)
        return start.like(start.flat.mean(0).expand_as(start.flat))


class ForgetsTheRest(LearnedInit):
    def shared(self) -> dict:
        return {}


class ForgetsOne(LearnedInit):
    def shared(self) -> dict:
        return {n: p for n, p in super().shared().items() if n != "norm.bias"}


class SharesAll(LearnedInit):
    def shared(self) -> dict:
        return dict(self.model.named_parameters())


class OtherOrder(LearnedInit):
    def start(self, support: Support) -> Params:
        start = super().start(support)
        return Params.of({name: start[name] for name in reversed(list(start))})


class OtherNames(LearnedInit):
    def start(self, support: Support) -> Params:
        return Params.of({f"model.{name}": t for name, t in super().start(support).items()})


class SinglePrecision(LearnedInit):
    def start(self, support: Support) -> Params:
        start = super().start(support)
        return start.like(start.flat.float())


class Dictionary(LearnedInit):
    def start(self, support: Support) -> dict:
        return dict(super().start(support))


class DetachedLayer(LearnedInit):
    def start(self, support: Support) -> Params:
        start = super().start(support)
        detached = {name: t.detach() if name == "first.bias" else t for name, t in start.items()}
        return Params.of(detached)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (RandomEachTime, "another result the second time"),
        (OneForAll, "every task its own"),
        (lambda model: MixesTasks(LearnedInit(model)), "differently alone"),
        (ForgetsTheRest, "all parameters of the model"),
        (ForgetsOne, "but `shared` lacks norm.bias; return {name: p for name, p in"),
        (
            SharesAll,
            "but both contain first.bias, first.weight, second.bias, second.weight; return",
        ),
        (OtherOrder, "got another order than there: second.bias.*instead of.*; use Params.of"),
        (OtherNames, "got other names than there: model.first.weight"),
        (SinglePrecision, "returned torch.float32, but.*`parameter.new_zeros`"),
        (Dictionary, "`start` must return Params, got dict; wrap tensors.*in Params.of"),
        (DetachedLayer, r"returned first.bias with no gradient, but.*remove `detach\(\)`"),
    ],
)
def test_a_broken_init_fails(make, fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        check_init(make)


def test_meta_parameters_without_gradient_are_found() -> None:
    class Detached(LearnedInit):
        def start(self, support: Support) -> Params:
            start = super().start(support)
            return start.like(start.flat.detach())

    with pytest.raises(AssertionError, match="no gradient"):
        check_init(Detached)


def test_an_init_may_need_classes_and_have_a_head() -> None:
    class ByClass(LearnedInit):
        classification_only = True

    check_init(ByClass)


def test_a_model_with_normalization_only_has_nothing_to_adapt() -> None:
    with pytest.raises(alfa.errors.ConfigError, match="nothing to adapt"):
        LearnedInit(nn.Sequential(nn.LayerNorm(3)))
