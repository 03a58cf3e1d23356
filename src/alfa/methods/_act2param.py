"""Activation-to-Parameter: class weights as a learned function of mean features."""

from alfa.methods._base import Method, register_method
from alfa.methods._rfs import PRETRAINING

_ACT2PARAM = (
    "Qiao, Liu, Shen, and Yuille. Few-Shot Image Recognition by Predicting Parameters from "
    "Activations. CVPR 2018."
)

register_method(
    Method(
        "act2param",
        "Activation to Parameter",
        _ACT2PARAM,
        init={"name": "weight-map"},
        settings={"model": {"frozen": True}, "inner": {"num_steps": 0}},
        parts={
            # The paper pretrains for 300 epochs, with an unknown schedule.
            "pretraining": {**PRETRAINING, "num_epochs": 300, "decay_epochs": [180, 240]},
            "optimizer": {
                "name": "sgd",
                "learning_rate": 0.001,
                "momentum": 0.9,
                "weight_decay": 5e-4,
            },
        },
    )
)
