"""TPN: transductive label propagation."""

from alfa.methods._base import Method, register_method

_TPN = (
    "Liu, Lee, Park, Kim, Yang, Hwang, and Yang. Learning to Propagate Labels: Transductive "
    "Propagation Network for Few-Shot Learning. ICLR 2019."
)

register_method(
    Method(
        "tpn",
        "TPN",
        _TPN,
        {"name": "task-head", "adapt": ["head.support", "head.labels"]},
        settings={"inner": {"num_steps": 0}},
        head={"name": "label-propagation"},
        parts={"schedule": {"name": "step", "gamma": 0.5, "every": 10_000}},
    )
)
