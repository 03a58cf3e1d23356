"""Update rules, which choose the rates of each inner step."""

from alfa.rules._adam import InnerAdam
from alfa.rules._alfa import ALFA
from alfa.rules._base import RULES, Rule, register_rule
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
    "Proximal",
    "Rule",
    "register_rule",
]
