"""UNICORN-MAML: many inner steps from a pretrained backbone and one vector for all classes."""

from collections.abc import Mapping
from typing import Any

from alfa.methods._base import Method, register_method
from alfa.methods._rfs import PRETRAINING

_UNICORN = "Ye and Chao. How to Train Your MAML to Excel in Few-Shot Classification. ICLR 2022."


def _unicorn(name: str, title: str, rule: Mapping[str, Any]) -> Method:
    return Method(
        name,
        title,
        _UNICORN,
        init={"name": "shared-head"},
        rule=rule,
        # The published scripts take 20 steps for five shots, and 5 for one.
        settings={"inner": {"num_steps": 20, "order": "first"}, "outer": {"num_tasks": 1}},
        objective={"name": "query-loss", "temperature": 0.5},
        parts={
            "pretraining": PRETRAINING,
            "optimizer": {
                "name": "sgd",
                "learning_rate": 0.001,
                "momentum": 0.9,
                "nesterov": True,
                "weight_decay": 5e-4,
            },
            # 20 epochs of 100 tasks
            "schedule": {"name": "step", "gamma": 0.1, "every": 2000},
        },
    )


register_method(_unicorn("unicorn-maml", "UNICORN-MAML", {"name": "sgd", "learning_rate": 0.1}))
register_method(_unicorn("alfa+unicorn-maml", "ALFA + UNICORN-MAML", {"name": "alfa"}))
