"""LEO: gradient descent on latent codes of the classes, and then on the last layer."""

from alfa.methods._base import Method, register_method
from alfa.methods._rfs import PRETRAINING

_LEO = (
    "Rusu, Rao, Sygnowski, Vinyals, Pascanu, Osindero, and Hadsell. Meta-Learning with Latent "
    "Embedding Optimization. ICLR 2019."
)

register_method(
    Method(
        "leo",
        "LEO",
        _LEO,
        init={"name": "latent-head", "adapt": ["head"]},
        # The published step is 0.001 on a loss that is five times as large for five classes.
        rule={
            "name": "learned",
            "alpha": {"source": "learned", "start": 0.005, "per_step": False, "per_layer": True},
            "beta": {"source": "constant", "value": 1.0},
        },
        settings={
            "model": {"frozen": True},
            "inner": {"num_steps": 5},
            # The published code, too, skips steps that are not finite.
            "outer": {"num_tasks": 12, "max_gradient_norm": 0.1, "max_skipped": 1000},
        },
        objective={"name": "latent-penalties"},
        parts={
            "pretraining": PRETRAINING,
            "optimizer": {"name": "adam", "learning_rate": 4.102361e-4},
        },
    )
)
