"""Named few-shot methods: recipes of an init, a rule, an objective, and a head."""

from alfa.methods import _maml as _maml  # isort: skip
from alfa.methods import _act2param as _act2param
from alfa.methods import _anil as _anil
from alfa.methods import _balanced_ridge as _balanced_ridge
from alfa.methods import _baseline_plus_plus as _baseline_plus_plus
from alfa.methods import _boil as _boil
from alfa.methods import _features as _features
from alfa.methods import _imaml as _imaml
from alfa.methods import _l2f as _l2f
from alfa.methods import _leo as _leo
from alfa.methods import _maml_plus_plus as _maml_plus_plus
from alfa.methods import _matching as _matching
from alfa.methods import _meta_curvature as _meta_curvature
from alfa.methods import _meta_lstm as _meta_lstm
from alfa.methods import _meta_sgd as _meta_sgd
from alfa.methods import _metaoptnet as _metaoptnet
from alfa.methods import _proto_maml as _proto_maml
from alfa.methods import _protonet as _protonet
from alfa.methods import _r2d2 as _r2d2
from alfa.methods import _relation as _relation
from alfa.methods import _reptile as _reptile
from alfa.methods import _rfs as _rfs
from alfa.methods import _snail as _snail
from alfa.methods import _tadam as _tadam
from alfa.methods import _tpn as _tpn
from alfa.methods import _unicorn_maml as _unicorn_maml
from alfa.methods._base import METHODS, Method, get_method, merge, register_method

__all__ = ["METHODS", "Method", "get_method", "merge", "register_method"]
