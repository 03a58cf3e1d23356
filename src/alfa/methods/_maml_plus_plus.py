"""MAML++: losses, learning rates, and normalization parameters of every inner step."""

from alfa.methods._base import Method, register_method

_MAML_PLUS_PLUS = "Antoniou, Edwards, and Storkey. How to Train Your MAML. ICLR 2019."

register_method(
    Method(
        "maml++",
        "MAML++",
        _MAML_PLUS_PLUS,
        {"name": "per-step-norm", "base": {"name": "learned"}},
        {"name": "learned", "beta": {"source": "constant", "value": 1.0}},
        settings={"outer": {"num_tasks": 2}},
        objective={"name": "multi-step"},
        # From 0.001 to 0.00001, the default of the published code.
        parts={"schedule": {"name": "cosine", "min_factor": 0.01}},
    )
)
