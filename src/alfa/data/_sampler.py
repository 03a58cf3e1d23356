"""Which classes a task has, and how many examples of each, as Meta-Dataset draws them.

Triantafillou et al., Meta-Dataset: A Dataset of Datasets for Learning to Learn from Few Examples,
2020, section 3.2 and appendix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from alfa.errors import ConfigError

# A node of a hierarchy that spans more classes is too general to be drawn. Of ILSVRC-2012's
# training classes this leaves every one within reach, and no smaller number does.
MOST_SPANNED = 392


@dataclass(frozen=True)
class Limits:
    """How large tasks are.

    Attributes:
        min_way: classes of a task at least.
        max_way: and at most.
        max_query: query examples of a class at most.
        max_support: support examples of a task at most.
        max_support_per_class: what a class adds at most to the size of the support set; it may
            then have more examples in it.
        min_log_weight: of a class, whose share of the support set is its size times the
            exponential of a number drawn uniformly from here ...
        max_log_weight: ... to here.

    Raises:
        ConfigError: there can be no such tasks.
    """

    min_way: int = 5
    max_way: int = 50
    max_query: int = 10
    max_support: int = 500
    max_support_per_class: int = 100
    min_log_weight: float = math.log(0.5)
    max_log_weight: float = math.log(2)

    def __post_init__(self) -> None:
        for key in ("min_way", "max_query", "max_support_per_class"):
            if getattr(self, key) < 1:
                raise ConfigError(f"`{key}` is {getattr(self, key)}, but must be at least 1.")
        if self.max_way < self.min_way:
            raise ConfigError(
                f"`max_way` is {self.max_way}, but must be at least `min_way`, {self.min_way}."
            )
        if self.max_support < self.max_way:
            raise ConfigError(
                f"`max_support` is {self.max_support}, but must be at least `max_way`, "
                f"{self.max_way}, as every class has a support example."
            )
        if self.max_log_weight < self.min_log_weight:
            raise ConfigError(
                f"`max_log_weight` is {self.max_log_weight}, but must be at least "
                f"`min_log_weight`, {self.min_log_weight}."
            )


@dataclass(frozen=True)
class Related:
    """Classes that go together in a task.

    Attributes:
        sets: of class numbers; a task's classes come from one of them, drawn uniformly.
        whole: a task takes all classes of a set, or `Limits.max_way` of them at random if there
            are more; otherwise any number of them.
    """

    sets: Sequence[np.ndarray]
    whole: bool


def by_prefix(names: Sequence[str]) -> Related:
    """Classes whose names have the same beginning before a slash, as those of one alphabet.

    Example:
        >>> from alfa.data import by_prefix
        >>> [members.tolist() for members in by_prefix(["Greek/a", "Latin/a", "Greek/b"]).sets]
        [[0, 2], [1]]
    """
    sets: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        sets.setdefault(name.partition("/")[0], []).append(number)
    return Related([np.array(members) for members in sets.values()], whole=False)


def by_hierarchy(names: Sequence[str], children: Mapping[str, Sequence[str]]) -> Related:
    """The classes that each node of a hierarchy spans.

    Args:
        names: of the classes, the leaves of the hierarchy; leaves that are no class do not count.
        children: of every node, which may have several parents.

    Example:
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
    """What a task consists of.

    Attributes:
        classes: by their numbers, in the order of their labels.
        num_support: examples of each.
        num_query: examples of every one.
    """

    classes: np.ndarray
    num_support: np.ndarray
    num_query: int


class Sampler:
    """Draws what tasks consist of.

    Args:
        counts: examples of every class, at least 2.
        related: which classes go together; None for any.
        limits: how large tasks are.

    Raises:
        ConfigError: no task can be drawn; says why.

    Example:
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
        whole = Related([np.arange(len(self.counts))], whole=False)
        self._whole = related is not None and related.whole
        self._sets = [
            members
            for members in (related or whole).sets
            if limits.min_way <= len(members) <= (MOST_SPANNED if self._whole else len(members))
        ]
        if fault := self._fault(related):
            raise ConfigError(f"{fault}.")

    def _fault(self, related: Related | None) -> str:
        if (self.counts < 2).any():
            few = np.flatnonzero(self.counts < 2)
            return f"the classes {few.tolist()} have fewer than 2 examples, one of each kind"
        if not self._sets:
            where = "" if related is None else f" in any of {len(related.sets)} related sets"
            return (
                f"there are {len(self.counts)} classes, but not {self.limits.min_way}, `min_way`,"
                f" together{where}"
            )
        return ""

    def draw(self, rng: np.random.Generator) -> Composition:
        """What one task consists of."""
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
        # One example for every class first, the rest in proportion to sizes that are distorted.
        weights = counts * np.exp(rng.uniform(limits.min_log_weight, limits.max_log_weight, way))
        more = np.floor(weights / weights.sum() * (size - way)).astype(np.int64)
        return Composition(classes, np.minimum(more + 1, left), num_query)
