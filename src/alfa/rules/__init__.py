"""Update rules, which choose the rates of an inner step."""

from alfa.rules._alfa import ALFA
from alfa.rules._base import RULES, Rule, register_rule
from alfa.rules._learned import LearnedRates
from alfa.rules._rates import Constant, Generated, Learned
from alfa.rules._sgd import SGD

__all__ = [
    "ALFA",
    "PRESETS",
    "RULES",
    "SGD",
    "Constant",
    "Generated",
    "Learned",
    "LearnedRates",
    "Rule",
    "register_rule",
]

PRESETS = ALFA.presets
