"""Prototypical networks: distances to class means."""

from alfa.methods._base import Method, register_method

PROTONET = "Snell, Swersky, and Zemel. Prototypical Networks for Few-Shot Learning. NIPS 2017."

register_method(
    Method(
        "protonet",
        "ProtoNet",
        PROTONET,
        {"name": "prototype-head", "adapt": ["head"]},
        settings={"inner": {"num_steps": 0}},
        parts={"schedule": {"name": "step", "gamma": 0.5, "every": 2_000}},
    )
)
