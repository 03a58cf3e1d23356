"""Relation networks: a learned comparison of queries with classes."""

from alfa.methods._base import Method, register_method

_RELATION = (
    "Sung, Yang, Zhang, Xiang, Torr, and Hospedales. Learning to Compare: Relation Network for "
    "Few-Shot Learning. CVPR 2018."
)

register_method(
    Method(
        "relation",
        "Relation Network",
        _RELATION,
        {"name": "task-head", "adapt": ["head.sums"]},
        settings={"inner": {"num_steps": 0}, "outer": {"max_gradient_norm": 0.5}},
        head={"name": "relation"},
        objective={"name": "query-loss", "loss": "squared_one_hot"},
        parts={"schedule": {"name": "step", "gamma": 0.5, "every": 100_000}},
        # The comparator needs larger maps.
        backbones={"conv4": {"num_pools": 2}},
    )
)
