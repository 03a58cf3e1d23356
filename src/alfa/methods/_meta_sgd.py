"""Meta-SGD: a learned rate of each weight."""

from alfa.methods._base import Method, register_method

_META_SGD = (
    "Li, Zhou, Chen, and Li. Meta-SGD: Learning to Learn Quickly for Few-Shot Learning. arXiv 2017."
)
_ONE_STEP = {"inner": {"num_steps": 1}}

register_method(
    Method("meta-sgd", "Meta-SGD", _META_SGD, {"name": "learned"}, {"name": "meta-sgd"}, _ONE_STEP)
)
