"""Update rules, which choose the rates and the direction of each inner step."""

from alfa.rules._adam import InnerAdam
from alfa.rules._alfa import ALFA
from alfa.rules._base import RULES, Rule, register_rule
from alfa.rules._meta_curvature import MetaCurvature
from alfa.rules._meta_lstm import MetaLSTM
from alfa.rules._meta_sgd import MetaSGD
from alfa.rules._momentum import Momentum
from alfa.rules._proximal import Proximal
from alfa.rules._rates import Constant, Generated, Learned, LearnedRates
from alfa.rules._sgd import SGD

__all__ = [
    "ALFA",
    "RULES",
    "SGD",
    "Constant",
    "Generated",
    "InnerAdam",
    "Learned",
    "LearnedRates",
    "MetaCurvature",
    "MetaLSTM",
    "MetaSGD",
    "Momentum",
    "Proximal",
    "Rule",
    "register_rule",
]
