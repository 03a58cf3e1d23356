"""Proto-MAML: prototypes as the initial last layer."""

from alfa.methods._base import Method, register_method
from alfa.methods._maml import ALFA

_PROTO_MAML = (
    "Triantafillou et al. Meta-Dataset: A Dataset of Datasets for Learning to Learn from Few "
    "Examples. ICLR 2020."
)
_PROTOTYPES = {"name": "prototype-head"}

register_method(Method("proto-maml", "Proto-MAML", _PROTO_MAML, _PROTOTYPES))
register_method(Method("alfa+proto-maml", "ALFA + Proto-MAML", ALFA, _PROTOTYPES, {"name": "alfa"}))
