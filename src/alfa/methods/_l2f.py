"""L2F: attenuation of the learned init."""

from alfa.methods._base import Method, register_method

_L2F = "Baik, Hong, and Lee. Learning to Forget for Meta-Learning. CVPR 2020."
_ATTENUATED = {"name": "attenuated", "base": {"name": "learned"}}

register_method(Method("maml+l2f", "MAML + L2F", _L2F, _ATTENUATED))
register_method(Method("alfa+maml+l2f", "ALFA + MAML + L2F", _L2F, _ATTENUATED, {"name": "alfa"}))
