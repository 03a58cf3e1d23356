"""The runs of `claims.py`, and the claims of the paper that they test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alfa.paper import classification

# Iterations of an epoch; `claims.py` keeps the run after each.
EPOCH = 500
# Iterations at which all methods are compared, and iterations of the variants of ALFA.
LENGTH, SHORT = 6_000, 2_000
# Variants of our defaults, each with one change.
VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "start-random": {"rule": {"generator_start": "random"}},
    "depth-2": {"rule": {"generator_depth": 2}},
    "beta-factor": {"rule": {"beta_form": "factor"}},
    "state-gradient-full": {"rule": {"state_gradient": "full"}},
    "state-gradient-none": {"rule": {"state_gradient": "none"}},
    "outer-rate": {"optimizer": {"name": "adam", "learning_rate": 0.002}},
}
CHANGES = {
    "start-random": "random initialization of g_phi",
    "depth-2": "two linear layers in g_phi instead of three",
    "beta-factor": "beta is beta0 beta1 (Eq. 7) instead of 1 - beta0 beta1",
    "state-gradient-full": "outer gradient through the whole state, including gradient means",
    "state-gradient-none": "no outer gradient through the state",
    "outer-rate": "outer learning rate 0.002 instead of 0.001",
}
# Variants that need a second seed.
REPEATED = ("state-gradient-full", "state-gradient-none")


@dataclass(frozen=True)
class Entry:
    """One run of the queue.

    Attributes:
        method: a method of the paper's tables.
        num_iterations: outer iterations.
        dataset: the dataset for training and testing.
        shot: support images per class.
        changes: options that differ from the paper's, by section.
        seed: the seed of the run.
        milestones: numbers of iterations at which the run is also tested, for comparison with
            shorter runs.
    """

    method: str
    num_iterations: int
    dataset: str = "cifar-fs"
    shot: int = 5
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seed: int = 0
    milestones: Sequence[int] = ()

    def content(self, num_iterations: int) -> dict[str, Any]:
        """Return the experiment as the content of a configuration file."""
        content = classification(self.dataset, self.method, shot=self.shot)
        for part, new in self.changes.items():
            content[part] = {**content.get(part, {}), **new}
        outer = {**content["outer"], "num_iterations": num_iterations}
        return {**content, "seed": self.seed, "outer": outer}


QUEUE = {
    "random": Entry("random", EPOCH),
    "alfa+random": Entry("alfa+random", LENGTH),
    "maml": Entry("maml", 15_000, milestones=(SHORT, LENGTH)),
    "alfa+maml": Entry("alfa+maml", 15_000, milestones=(SHORT, LENGTH)),
    "maml+l2f": Entry("maml+l2f", LENGTH),
    "alfa+maml+l2f": Entry("alfa+maml+l2f", LENGTH),
    "1-shot-random": Entry("random", EPOCH, shot=1),
    **{
        f"1-shot-{method}": Entry(method, 5_000, shot=1)
        for method in ("maml", "alfa+maml", "alfa+random")
    },
    "fc100-random": Entry("random", EPOCH, dataset="fc100"),
    **{
        f"fc100-{method}": Entry(method, 4_000, dataset="fc100") for method in ("maml", "alfa+maml")
    },
    **{name: Entry("alfa+maml", SHORT, changes=changes) for name, changes in VARIANTS.items()},
    "maml-outer-rate": Entry("maml", SHORT, changes=VARIANTS["outer-rate"]),
    "seed-1": Entry("alfa+maml", SHORT, seed=1),
    **{
        f"seed-1-{name}": Entry("alfa+maml", SHORT, changes=VARIANTS[name], seed=1)
        for name in REPEATED
    },
}

METHODS = ("random", "alfa+random", "maml", "alfa+maml", "maml+l2f", "alfa+maml+l2f")
OTHER_DATASETS = ("omniglot", "cub", "traffic-sign", "vgg-flower")
# Pairs of methods for which Table 1, with 4-CONV, always reports a higher accuracy of the first
# one, as Table B mostly does.
CLAIMS = {
    ("alfa+random", "random"): "ALFA improves a random init.",
    ("alfa+maml", "maml"): "ALFA improves MAML.",
    ("alfa+maml+l2f", "maml+l2f"): "ALFA improves MAML + L2F.",
    ("alfa+random", "maml"): "ALFA with a random init is better than MAML.",
    ("alfa+maml+l2f", "maml"): "ALFA and L2F together improve MAML.",
    ("maml+l2f", "maml"): "L2F improves MAML.",
    ("alfa+maml+l2f", "alfa+maml"): "L2F improves ALFA + MAML.",
}

# The paper's tables and places for models trained on miniImageNet and tested on other datasets.
PUBLISHED_TRANSFER = {
    "omniglot": ("tableE", "miniimagenet-5w5s-to-omniglot"),
    "cub": ("table2", "miniimagenet-5w5s-to-cub"),
}

# Results of the published code and of a prototype after `SHORT` iterations on the same split.
OTHER_CODE = {
    "maml": ("MAML", "-", "53.5 +- 1.2"),
    "start-random": ("ALFA + MAML, random start of g_phi", "68.9 +- 1.2", "68.2 +- 1.1"),
    "alfa+maml": ("ALFA + MAML, identity start of g_phi", "-", "69.4 +- 1.1"),
}
