"""ANIL: MAML with an inner loop for the last layer only."""

from alfa.methods._base import Method, register_method

_ANIL = (
    "Raghu, Raghu, Bengio, and Vinyals. Rapid Learning or Feature Reuse? Towards Understanding the "
    "Effectiveness of MAML. ICLR 2020."
)

register_method(
    Method(
        "anil",
        "ANIL",
        _ANIL,
        {"name": "learned", "adapt": ["head"]},
        settings={"inner": {"num_test_steps": 10}, "outer": {"num_tasks": 4}},
    )
)
