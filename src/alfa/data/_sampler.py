"""The task sampler of Meta-Dataset: the classes of a task, and their numbers of examples.

Triantafillou et al., Meta-Dataset: A Dataset of Datasets for Learning to Learn from Few Examples,
2020, section 3.2 and appendix.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from alfa.errors import ConfigError

# Nodes of a hierarchy that span more classes are too general to be drawn. This is the smallest
# limit at which every training class of ILSVRC-2012 can be drawn.
MOST_SPANNED = 392


@dataclass(frozen=True)
class Limits:
    """Limits on the size of tasks.

    The share of a class in the support set is proportional to its size times exp(w), where w is
    uniform between `min_log_weight` and `max_log_weight`.

    Attributes:
        min_way: the smallest number of classes in a task.
        max_way: the largest number of classes in a task.
        max_query: the largest number of query examples per class.
        max_support: the largest number of support examples in a task.
        max_support_per_class: the largest contribution of a class to the size of the support set.
        min_log_weight: the lower bound of w.
        max_log_weight: the upper bound of w.
    """

    min_way: int = 5
    max_way: int = 50
    max_query: int = 10
    max_support: int = 500
    max_support_per_class: int = 100
    min_log_weight: float = math.log(0.5)
    max_log_weight: float = math.log(2)

    def __post_init__(self) -> None:
        bounds: dict[str, tuple[str, float]] = {
            "min_way": ("", 1),
            "max_query": ("", 1),
            "max_support_per_class": ("", 1),
            "max_way": ("`min_way`, ", self.min_way),
            # Every class has a support example.
            "max_support": ("`max_way`, ", self.max_way),
            "max_log_weight": ("`min_log_weight`, ", self.min_log_weight),
        }
        for key, (name, bound) in bounds.items():
            value = getattr(self, key)
            if value < bound:
                raise ConfigError(f"`{key}` must be at least {name}{bound}, got {value}.")


@dataclass(frozen=True)
class Related:
    """Sets of class indices; the classes of a task come from one set, drawn uniformly.

    If `whole`, a task contains all classes of a set, or `Limits.max_way` random ones if there are
    more; otherwise a random number of them.
    """

    sets: Sequence[np.ndarray]
    whole: bool


def by_prefix(names: Sequence[str]) -> Related:
    """Relate classes whose names have the same prefix before a slash, such as an alphabet.

    Examples:
        >>> from alfa.data import by_prefix
        >>> [members.tolist() for members in by_prefix(["Greek/a", "Latin/a", "Greek/b"]).sets]
        [[0, 2], [1]]
    """
    sets: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        sets.setdefault(name.partition("/")[0], []).append(number)
    return Related([np.array(members) for members in sets.values()], whole=False)


def by_hierarchy(names: Sequence[str], children: Mapping[str, Sequence[str]]) -> Related:
    """Relate the classes that each node of a hierarchy spans.

    `names` are leaves of the hierarchy; `children` lists the children of every other node.

    Examples:
        >>> from alfa.data import by_hierarchy
        >>> children = {"animal": ["pet", "bear"], "pet": ["cat", "dog"]}
        >>> related = by_hierarchy(["bear", "cat", "dog"], children)
        >>> [members.tolist() for members in related.sets]
        [[0, 1, 2], [1, 2]]
    """
    number = {name: place for place, name in enumerate(names)}
    spanned: dict[str, frozenset[int]] = {}

    def span(node: str) -> frozenset[int]:
        if node not in spanned:
            below = children.get(node, ())
            own = frozenset({number[node]} if not below and node in number else ())
            spanned[node] = own.union(*map(span, below))
        return spanned[node]

    nodes = sorted(node for node, below in children.items() if below)
    sets = [np.array(sorted(span(node)), dtype=np.int64) for node in nodes]
    return Related([members for members in sets if len(members)], whole=True)


@dataclass(frozen=True, eq=False)
class Composition:
    """The class indices of a task in the order of their labels, and the examples per class."""

    classes: np.ndarray
    num_support: np.ndarray
    num_query: int


class Sampler:
    """Draws the compositions of tasks.

    Args:
        counts: the number of examples of every class, at least 2.
        related: sets of classes that may form a task together; None for any classes.
        limits: limits on the size of tasks.

    Examples:
        >>> import numpy as np
        >>> from alfa.data import Sampler
        >>> drawn = Sampler(np.full(20, 30)).draw(np.random.default_rng(0))
        >>> len(drawn.classes), drawn.num_query, int(drawn.num_support.sum())
        (18, 10, 111)
    """

    def __init__(
        self,
        counts: np.ndarray,
        *,
        related: Related | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        self.counts, self.limits = np.asarray(counts), limits
        few = np.flatnonzero(self.counts < 2)
        if len(few):
            raise ConfigError(
                f"the classes {few.tolist()} must have at least 2 examples, for support and query."
            )
        together = related or Related([np.arange(len(self.counts))], whole=False)
        self._whole = together.whole
        most = MOST_SPANNED if self._whole else len(self.counts)
        self._sets = [m for m in together.sets if limits.min_way <= len(m) <= most]
        if not self._sets:
            found = f"there are {len(self.counts)} classes"
            if related is not None:
                found = f"none of {len(related.sets)} related sets has as many classes"
            raise ConfigError(f"`min_way` is {limits.min_way}, but {found}.")

    def draw(self, rng: np.random.Generator) -> Composition:
        """Draw the composition of one task."""
        limits = self.limits
        members = self._sets[rng.integers(len(self._sets))]
        most = min(limits.max_way, len(members))
        way = most if self._whole else int(rng.integers(limits.min_way, most + 1))
        classes = rng.choice(members, way, replace=False)
        counts = self.counts[classes]
        num_query = int(min(limits.max_query, (counts // 2).min()))
        left = counts - num_query
        # One share for the whole task: floor(u x + 1) is at least 1.
        share = rng.uniform()
        wanted = np.floor(share * np.minimum(limits.max_support_per_class, left) + 1)
        size = int(min(limits.max_support, wanted.sum()))
        # Every class gets one example; the rest is proportional to the weighted sizes.
        weights = counts * np.exp(rng.uniform(limits.min_log_weight, limits.max_log_weight, way))
        more = np.floor(weights / weights.sum() * (size - way)).astype(np.int64)
        return Composition(classes, np.minimum(more + 1, left), num_query)
