"""What `claims.py` trains, and which claims of the paper that speaks to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alfa.paper import classification

# Validations, after each of which what was reached is kept.
EPOCH = 500
# Iterations that all rows are compared at, and those of the variants of ALFA.
LENGTH, SHORT = 6_000, 2_000
# What of our defaults is changed, one at a time, and how that is told.
VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "start-random": {"rule": {"generator_start": "random"}},
    "depth-2": {"rule": {"generator_depth": 2}},
    "beta-factor": {"rule": {"beta_form": "factor"}},
    "state-gradient-full": {"rule": {"state_gradient": "full"}},
    "state-gradient-none": {"rule": {"state_gradient": "none"}},
    "outer-rate": {"optimizer": {"name": "adam", "learning_rate": 0.002}},
}
CHANGES = {
    "start-random": "g_phi starts at random",
    "depth-2": "g_phi has two linear layers instead of three",
    "beta-factor": "beta is beta0 beta1 (Eq. 7) instead of 1 - beta0 beta1",
    "state-gradient-full": "the outer gradient follows the gradients' means in the state, too",
    "state-gradient-none": "the outer gradient follows nothing of the state",
    "outer-rate": "the outer learning rate is 0.002 instead of 0.001",
}
# Those that one seed does not settle.
REPEATED = ("state-gradient-full", "state-gradient-none")


@dataclass(frozen=True)
class Entry:
    """One training of the queue.

    Attributes:
        method: a row of the paper's tables.
        num_iterations: to train for.
        dataset: that it is trained and tested on.
        shot: support images of a class.
        changes: options that are not the row's, by the part of the experiment that has them.
        seed: of the training.
        milestones: lengths on the way that are tested as the last one is, to be held against
            shorter trainings.
    """

    method: str
    num_iterations: int
    dataset: str = "cifar-fs"
    shot: int = 5
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seed: int = 0
    milestones: Sequence[int] = ()

    def content(self, num_iterations: int) -> dict[str, Any]:
        """The experiment, as in a file."""
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

ROWS = ("random", "alfa+random", "maml", "alfa+maml", "maml+l2f", "alfa+maml+l2f")
ELSEWHERE = ("omniglot", "cub", "traffic-sign", "vgg-flower")
# What the paper has higher than what with 4-CONV: in all of Table 1, and in most of Table B.
CLAIMS = {
    ("alfa+random", "random"): "Generated rates make a random initialization learn.",
    ("alfa+maml", "maml"): "Generated rates help where the initialization is learned, too.",
    ("alfa+maml+l2f", "maml+l2f"): "They help where it is attenuated for every task.",
    ("alfa+random", "maml"): "The rule alone is worth more than the initialization alone.",
    ("alfa+maml+l2f", "maml"): "With attenuation, too, they are above MAML.",
    ("maml+l2f", "maml"): "Attenuation helps.",
    ("alfa+maml+l2f", "alfa+maml"): "Attenuation helps beside generated rates.",
}

# The paper's rows that were trained on miniImageNet and tested elsewhere, as tables and places.
OF_PAPER_ELSEWHERE = {
    "omniglot": ("tableE", "miniimagenet-5w5s-to-omniglot"),
    "cub": ("table2", "miniimagenet-5w5s-to-cub"),
}

# After `SHORT` iterations on the same split, of the published code and of a prototype.
OF_OTHERS = {
    "maml": ("MAML", "-", "53.5 +- 1.2"),
    "start-random": ("ALFA + MAML, g_phi starts at random", "68.9 +- 1.2", "68.2 +- 1.1"),
    "alfa+maml": ("ALFA + MAML, g_phi starts at the identity", "-", "69.4 +- 1.1"),
}
