"""MetaOptNet: a support vector machine as the last layer."""

from alfa.methods._base import Method, register_method

_METAOPTNET = (
    "Lee, Maji, Ravichandran, and Soatto. Meta-Learning with Differentiable Convex Optimization. "
    "CVPR 2019."
)

register_method(
    Method(
        "metaoptnet",
        "MetaOptNet-SVM",
        _METAOPTNET,
        {"name": "svm-head", "adapt": ["head"]},
        settings={"inner": {"num_steps": 0}},
        objective={"name": "query-loss", "label_smoothing": 0.1},
        parts={
            "optimizer": {
                "name": "sgd",
                "learning_rate": 0.1,
                "momentum": 0.9,
                "nesterov": True,
                "weight_decay": 0.0005,
            },
        },
    )
)
