"""Baseline++: a cosine classifier trained on the features of a pretrained backbone."""

from alfa.methods._base import Method, register_method

_BASELINE = "Chen, Liu, Kira, Wang, and Huang. A Closer Look at Few-Shot Classification. ICLR 2019."

register_method(
    Method(
        "baseline++",
        "Baseline++",
        _BASELINE,
        init={"name": "task-head"},
        head={"name": "cosine-sgd"},
        settings={"model": {"frozen": True}, "inner": {"num_steps": 0}},
        parts={
            "pretraining": {
                "num_epochs": 400,
                "batch_size": 16,
                "learning_rate": 0.001,
                "augment": True,
                "optimizer": "adam",
                # A constant rate
                "schedule": "step",
                "classifier": "head",
            }
        },
    )
)
