"""Every registered head fulfills the contract, and broken ones fail."""

import functools

import pytest
import torch
from torch import nn

from alfa.inits import prototypes
from alfa.models import HEADS, Head
from alfa.testing import check_head

# Options without defaults.
REQUIRED = {"kernel-ridge": {"groups": (40, 30, 30)}}


@pytest.mark.parametrize("name", list(HEADS))
def test_head_fulfills_the_contract(name: str) -> None:
    make = functools.partial(HEADS.get(name), **REQUIRED.get(name, {}))
    check_head(make, feature_shape=(4, 5, 5))


class Valid(Head):
    task_parameters = ("centers",)

    def __init__(self, feature_shape, num_outputs) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.zeros(num_outputs, *feature_shape).flatten(1))
        self.scale = nn.Parameter(torch.ones(()))

    def fit(self, z, y, way):
        return {"centers": prototypes(z, y, way)}

    def forward(self, z):
        return -self.scale * (z.unsqueeze(1) - self.centers).square().sum(-1)


class Normalized(Valid):
    """Batch norm, which can be inductive, makes a head no transductive one."""

    def __init__(self, feature_shape, num_outputs) -> None:
        super().__init__(feature_shape, num_outputs)
        self.norm = nn.BatchNorm1d(num_outputs, track_running_stats=False)

    def forward(self, z):
        return self.norm(super().forward(z))


class NormalizedTransductive(Normalized):
    def forward(self, z):
        return super().forward(z - z.mean(0))


class OtherNames(Valid):
    def fit(self, z, y, way):
        return {"prototypes": prototypes(z, y, way)}


class OneForAll(Valid):
    def fit(self, z, y, way):
        return {"centers": prototypes(z, y, way)[:1]}


class PerExample(Valid):
    def fit(self, z, y, way):
        return {"centers": z.flatten(0, 1)}


class OneTask(Valid):
    def fit(self, z, y, way):
        return {"centers": prototypes(z, y, way)[0]}


class SinglePrecision(Valid):
    def fit(self, z, y, way):
        return {"centers": prototypes(z, y, way).float()}


class SinglePrecisionOutputs(Valid):
    def forward(self, z):
        return super().forward(z).float()


class Bare(Valid):
    def fit(self, z, y, way):
        return prototypes(z, y, way)


class Misspelled(Valid):
    task_parameters = ("centres",)


class OneName(Valid):
    task_parameters = "centers"


class Random(Valid):
    def fit(self, z, y, way):
        return {"centers": prototypes(z, y, way) + torch.rand(())}


class Transductive(Valid):
    def forward(self, z):
        return super().forward(z - z.mean(0))


class Unused(Valid):
    def forward(self, z):
        return super().forward(z) / self.scale.detach() * 0 - z @ self.centers.mT


class Transposed(Valid):
    def forward(self, z):
        return super().forward(z).mT


@pytest.mark.parametrize("feature_shape", [(4,), (2, 3, 3)])
def test_a_valid_head_passes(feature_shape: tuple[int, ...]) -> None:
    check_head(Valid, feature_shape=feature_shape)
    check_head(Normalized, feature_shape=feature_shape)


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (OtherNames, "`fit` must return centers, got prototypes"),
        (OneForAll, "begin with the task dimension, here 2; keep the first dimension of `z`"),
        (OneTask, r"of shape \[3, 4\], which must begin with the task dimension, here 2"),
        (
            PerExample,
            r"of shape \[12, 4\].*a row for each support example.*`alfa.inits.prototypes`",
        ),
        (SinglePrecision, r"centers as torch.float32, but.* torch.float64; convert it with `.to\("),
        (SinglePrecisionOutputs, "the outputs are torch.float32.*keep the type of `z`"),
        (Bare, "`fit` must return a mapping of names to tensors, got Tensor; return {'centers': "),
        (
            Misspelled,
            "has 'centres', which is not a parameter of the head; create it in `__init__`",
        ),
        (OneName, r"is the text 'centers', but must be a tuple of names; write \('centers',\)"),
        (Random, "another centers the second time"),
        (Transductive, "set `is_transductive`"),
        (NormalizedTransductive, "set `is_transductive`"),
        (Unused, "has no effect"),
        (Transposed, r"\[task, query, class\]"),
    ],
)
def test_a_broken_head_fails(broken: type[Head], fault: str) -> None:
    with pytest.raises((AssertionError, KeyError), match=fault):
        check_head(broken)
