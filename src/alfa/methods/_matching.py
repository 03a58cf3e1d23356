"""Matching networks, without and with full context embeddings."""

from alfa.methods._base import Method, register_method

_MATCHING = (
    "Vinyals, Blundell, Lillicrap, Kavukcuoglu, and Wierstra. Matching Networks for One Shot "
    "Learning. NIPS 2016."
)

for _name, _title, _adapt in (
    ("matching", "Matching Networks", ["head.weight"]),
    ("matching-fce", "Matching Networks + FCE", ["head.support", "head.labels"]),
):
    register_method(
        Method(
            _name,
            _title,
            _MATCHING,
            {"name": "task-head", "adapt": _adapt},
            settings={"inner": {"num_steps": 0}},
            head={"name": _name},
            parts={"optimizer": {"name": "adam", "learning_rate": 0.0001}},
        )
    )
