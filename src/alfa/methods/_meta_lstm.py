"""Meta-Learner LSTM: an LSTM that updates each weight."""

from alfa.methods._base import Method, register_method

_META_LSTM = "Ravi and Larochelle. Optimization as a Model for Few-Shot Learning. ICLR 2017."

register_method(
    Method(
        "meta-lstm",
        "Meta-Learner LSTM",
        _META_LSTM,
        {"name": "learned"},
        {"name": "meta-lstm"},
        # Gradients and losses of the support set are constants.
        {"inner": {"order": "first", "num_steps": 5}, "outer": {"max_gradient_norm": 0.25}},
        parts={"optimizer": {"name": "adam", "learning_rate": 0.001}},
    )
)
