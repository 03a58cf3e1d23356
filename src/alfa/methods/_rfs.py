"""RFS: logistic regression on the features of a pretrained backbone."""

from alfa.methods._base import Method, register_method

RFS = (
    "Tian, Wang, Krishnan, Tenenbaum, and Isola. Rethinking Few-Shot Image Classification: A Good "
    "Embedding Is All You Need? ECCV 2020."
)
PRETRAINING = {
    "num_epochs": 100,
    "batch_size": 64,
    "learning_rate": 0.05,
    "augment": True,
    "optimizer": "sgd",
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "schedule": "step",
    "decay_epochs": [60, 80],
    "decay_factor": 0.1,
}
_DISTILLATION = {"num_distillations": 2, "temperature": 4.0, "distillation_weight": 0.5}


def _rfs(name: str, title: str, **more: object) -> Method:
    return Method(
        name,
        title,
        RFS,
        init={"name": "task-head"},
        head={"name": "logistic"},
        settings={"model": {"frozen": True}, "inner": {"num_steps": 0}},
        parts={"pretraining": {**PRETRAINING, **more}},
    )


register_method(_rfs("rfs", "RFS"))
register_method(_rfs("rfs-distill", "RFS-distill", **_DISTILLATION))
