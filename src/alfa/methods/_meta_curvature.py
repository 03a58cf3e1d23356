"""Meta-Curvature: a learned linear map of the gradient."""

from alfa.methods._base import Method, register_method

_META_CURVATURE = "Park and Oliva. Meta-Curvature. NeurIPS 2019."
_RULE = {"name": "meta-curvature"}

register_method(
    Method("meta-curvature", "Meta-Curvature", _META_CURVATURE, {"name": "learned"}, _RULE)
)
