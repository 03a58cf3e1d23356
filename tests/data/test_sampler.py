"""The sampler agrees with the definition of Meta-Dataset's sampler."""

from __future__ import annotations

import math

import numpy as np
import pytest

from alfa.data import Limits, Related, Sampler, by_hierarchy, by_prefix, related_classes
from alfa.errors import ConfigError

NUM_DRAWS = 4_000


def draws(sampler: Sampler, count: int = NUM_DRAWS, seed: int = 0):
    rng = np.random.default_rng(seed)
    return [sampler.draw(rng) for _ in range(count)]


def even(counts) -> bool:
    """Return True if counts are uniform, by a chi-squared test with a 0.1 % false-alarm rate."""
    counts = np.asarray(counts)
    expected = counts.sum() / len(counts)
    degrees = len(counts) - 1
    chi_squared = float(np.sum((counts - expected) ** 2) / expected)
    # Wilson and Hilferty: its cube root is about normal.
    spread = 2 / (9 * degrees)
    return ((chi_squared / degrees) ** (1 / 3) - (1 - spread)) / math.sqrt(spread) < 3.1


def uniform(values, low: int, high: int) -> bool:
    """Return True if all numbers from low to high are equally likely."""
    counts = np.bincount(np.asarray(values) - low, minlength=high - low + 1)
    return len(counts) == high - low + 1 and even(counts)


# The number of classes, and which


@pytest.mark.parametrize(("num_classes", "most"), [(5, 5), (12, 12), (50, 50), (80, 50)])
def test_the_way_is_uniform_from_5_to_50_or_all_classes(num_classes: int, most: int) -> None:
    ways = [len(drawn.classes) for drawn in draws(Sampler(np.full(num_classes, 20)))]
    assert min(ways) == 5
    assert max(ways) == most
    if most > 5:
        assert uniform(ways, 5, most)


def test_classes_are_different_ones_and_all_equally_likely() -> None:
    found = draws(Sampler(np.full(23, 20)))
    assert all(len(set(drawn.classes)) == len(drawn.classes) for drawn in found)
    counts = np.bincount(np.concatenate([drawn.classes for drawn in found]))
    assert even(counts)
    # The order determines the labels.
    first = np.bincount([drawn.classes[0] for drawn in found])
    assert even(first)


def test_alphabets_are_drawn_uniformly_and_their_characters_with_any_way() -> None:
    sizes = {"Greek": 24, "Latin": 8, "Tifinagh": 55, "Braille": 5, "Short": 4}
    names = [f"{name}/{number}" for name, size in sizes.items() for number in range(size)]
    related = by_prefix(names)
    found = draws(Sampler(np.full(len(names), 20), related=related))
    alphabets = []
    for drawn in found:
        (alphabet,) = {names[c].partition("/")[0] for c in drawn.classes}
        alphabets.append(alphabet)
    # One that is too small for a task is never drawn, and the others do not depend on their size.
    assert set(alphabets) == set(sizes) - {"Short"}
    counts = [alphabets.count(name) for name in set(alphabets)]
    assert even(counts)
    for name, most in (("Greek", 24), ("Latin", 8), ("Tifinagh", 50)):
        ways = [len(d.classes) for d, own in zip(found, alphabets, strict=True) if own == name]
        assert uniform(ways, 5, most)


def test_a_node_of_the_hierarchy_is_drawn_and_all_its_leaves_are_the_classes() -> None:
    #           root (8)
    #      left (5)   right (6), which share c, d and e
    children = {
        "root": ["left", "right"],
        "left": ["a", "b", "shared"],
        "right": ["f", "g", "h", "shared"],
        "shared": ["c", "d", "e"],
    }
    names = list("abcdefgh")
    found = draws(Sampler(np.full(8, 20), related=by_hierarchy(names, children)))
    sets = ["".join(sorted(names[c] for c in drawn.classes)) for drawn in found]
    # Three leaves are too few for a task.
    assert set(sets) == {"abcdefgh", "abcde", "cdefgh"}
    assert even([sets.count(name) for name in set(sets)])


def test_of_a_node_with_more_leaves_50_are_drawn_and_one_of_too_many_is_none() -> None:
    names = [f"leaf{number}" for number in range(400)]
    children = {"all": ["most", "few"], "most": names[:390], "few": names[390:]}
    found = draws(Sampler(np.full(400, 20), related=by_hierarchy(names, children)), 2_000)
    ways = [len(drawn.classes) for drawn in found]
    # 400 leaves are more than 392, 390 are not.
    assert set(ways) == {10, 50}
    large = np.concatenate([drawn.classes for drawn in found if len(drawn.classes) == 50])
    assert large.max() < 390
    assert even(np.bincount(large))


def test_leaves_that_are_not_there_do_not_count() -> None:
    children = {"root": ["n", "m"], "n": list("abcdefg"), "m": list("vwxyz")}
    related = by_hierarchy(list("abcdez"), children)
    assert [sorted(members.tolist()) for members in related.sets] == [
        [5],
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4, 5],
    ]


def test_the_hierarchy_of_ilsvrc_2012_is_the_published_one() -> None:
    from alfa.data.sources._published import read_split

    leaves = {}
    for split, (num_leaves, num_eligible) in {
        "train": (712, 113),
        "val": (158, 18),
        "test": (130, 15),
    }.items():
        graph = read_split("md-ilsvrc")[split]
        below = {child for nodes in graph.values() for child in nodes}
        leaves[split] = sorted(below - set(graph))
        assert len(leaves[split]) == num_leaves
        sampler = Sampler(
            np.full(num_leaves, 10), related=related_classes("md-ilsvrc", split, leaves[split])
        )
        assert len(sampler._sets) == num_eligible
        # Every class can be drawn.
        assert len(np.unique(np.concatenate(sampler._sets))) == num_leaves
    assert not set(leaves["train"]) & set(leaves["val"])
    assert not set(leaves["train"]) & set(leaves["test"])


# How many examples


@pytest.mark.parametrize(
    ("counts", "expected"), [([2, 40], 1), ([3, 9], 1), ([8, 9], 4), ([50], 10)]
)
def test_queries_are_half_of_the_smallest_class_or_10(counts, expected: int) -> None:
    sampler = Sampler(np.array(counts * 5), limits=Limits(min_way=5 * len(counts)))
    assert {drawn.num_query for drawn in draws(sampler, 50)} == {expected}


def unweighted(num_classes: int, **options) -> Limits:
    """All classes in every task, and shares by their sizes alone."""
    # Equal classes then have equally many examples, and nothing of the size drawn is floored away.
    return Limits(
        min_way=num_classes, max_way=num_classes, min_log_weight=0, max_log_weight=0, **options
    )


def support_sizes(found) -> np.ndarray:
    return np.array([int(drawn.num_support.sum()) for drawn in found])


@pytest.mark.parametrize(
    ("count", "most"), [(12, 6), (40, 30), (109, 99), (110, 100), (111, 100), (10_000, 100)]
)
def test_the_size_of_the_support_set_follows_its_definition(count: int, most: int) -> None:
    """floor(u min(100, n - q) + 1), summed over classes: with equal ones a scaled uniform."""
    # An eighth of a number is exact.
    limits = unweighted(8, max_support=1_000)
    found = draws(Sampler(np.full(8, count), limits=limits))
    assert all(len(set(drawn.num_support)) == 1 for drawn in found)
    sizes = support_sizes(found)
    assert not (sizes % 8).any()
    assert uniform(sizes // 8, 1, most)


def test_weights_take_from_the_size_that_was_drawn_and_never_add_to_it() -> None:
    # The rest is floored class by class, and a class has no more than it has.
    sizes = support_sizes(draws(Sampler(np.full(5, 40))))
    assert sizes.max() <= 150
    assert sizes.min() == 5


def test_no_class_adds_more_than_100_and_no_support_set_has_more_than_500() -> None:
    few = support_sizes(draws(Sampler(np.full(5, 10_000), limits=unweighted(5))))
    assert few.max() == 500
    assert np.mean(few == 500) == pytest.approx(1 / 100, abs=0.006)
    # Of the 100 sizes of ten classes, 10 to 1,000, those from 500 on are cut off.
    cut = support_sizes(draws(Sampler(np.full(10, 10_000), limits=unweighted(10))))
    assert np.mean(cut == 500) == pytest.approx(51 / 100, abs=0.03)
    assert uniform(cut[cut < 500] // 10, 1, 49)
    sizes = support_sizes(draws(Sampler(np.full(60, 1_000)), 500))
    assert max(sizes) <= 500
    assert max(sizes) > 440
    # With 50 classes the limit is reached whenever a class would have more than 10.
    assert np.mean([size > 400 for size in sizes]) > 0.5


def test_small_classes_share_by_their_whole_sizes_and_not_by_what_queries_leave() -> None:
    """Without weights, the examples of a class are a function of u."""
    counts = np.array([12, 20, 30, 45, 60])
    left = counts - 6

    def by_definition(u: float) -> tuple[int, ...]:
        rest = sum(math.floor(u * own + 1) for own in left) - 5
        shares = [1 + math.floor(count * rest / 167) for count in counts]
        return tuple(min(share, own) for share, own in zip(shares, left.tolist(), strict=True))

    grid = [by_definition(u) for u in (np.arange(20_000) + 0.5) / 20_000]
    found = draws(Sampler(counts, limits=unweighted(5)))
    assert {drawn.num_query for drawn in found} == {6}
    drawn = np.array([d.num_support[np.argsort(d.classes)] for d in found])
    assert set(map(tuple, drawn.tolist())) <= set(grid)
    # Within four standard errors of the mean of every class.
    expected, spread = np.mean(grid, axis=0), np.std(grid, axis=0)
    assert np.all(np.abs(drawn.mean(0) - expected) < 4 * spread / math.sqrt(NUM_DRAWS))


def test_the_shares_are_sizes_times_a_weight_between_a_half_and_2() -> None:
    """Invert the definition: the additional examples of a class, divided by its size."""
    counts = np.array([100, 200, 400, 800, 1600]) * 100
    limits = Limits(max_way=5, max_support=4_000, max_support_per_class=4_000)
    ratios = []
    for drawn in draws(Sampler(counts, limits=limits)):
        if drawn.num_support.sum() < 3_000:
            continue
        per_image = (drawn.num_support - 1) / counts[drawn.classes]
        ratios += [per_image[a] / per_image[b] for a in range(5) for b in range(a)]
    assert len(ratios) > 1_000
    ratios = np.log(ratios)
    # The difference of two uniform numbers from log 0.5 to log 2 is triangular.
    width = math.log(4)
    assert np.abs(ratios).max() < width + 0.1
    assert np.mean(ratios) == pytest.approx(0, abs=0.03)
    assert np.std(ratios) == pytest.approx(width / math.sqrt(6), rel=0.05)


def test_every_class_has_a_support_example_and_enough_left_for_its_queries() -> None:
    rng = np.random.default_rng(3)
    counts = rng.integers(2, 300, size=70)
    for drawn in draws(Sampler(counts), 1_000):
        own = counts[drawn.classes]
        assert drawn.num_support.min() >= 1
        assert (drawn.num_support + drawn.num_query <= own).all()
        assert 1 <= drawn.num_query <= min(10, own.min() // 2)
        assert drawn.num_support.sum() <= 500


# Borders


def test_a_class_of_2_images_has_one_of_each_kind() -> None:
    counts = np.array([2, 30, 30, 30, 30])
    for drawn in draws(Sampler(counts), 200):
        assert drawn.num_query == 1
        (small,) = drawn.num_support[drawn.classes == 0]
        assert small == 1


def test_exactly_5_classes_are_always_all_of_them() -> None:
    for drawn in draws(Sampler(np.full(5, 7)), 100):
        assert sorted(drawn.classes) == [0, 1, 2, 3, 4]


def test_50_classes_of_2_images_have_50_supports_and_50_queries() -> None:
    limits = Limits(min_way=50)
    for drawn in draws(Sampler(np.full(50, 2), limits=limits), 20):
        assert len(drawn.classes) == 50
        assert drawn.num_support.tolist() == [1] * 50
        assert drawn.num_query == 1


def test_500_supports_can_be_reached() -> None:
    """As many supports as allowed, for 50 classes: one for each, and 450 by their shares."""
    limits = Limits(min_way=50, min_log_weight=0, max_log_weight=0)
    found = draws(Sampler(np.full(50, 1_000), limits=limits), 200)
    assert max(int(drawn.num_support.sum()) for drawn in found) == 500
    assert max(int(drawn.num_support.max()) for drawn in found) == 10


# Faults


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(ConfigError, match=r"classes \[1, 3\] must have at least 2"):
        Sampler(np.array([4, 1, 4, 0, 9]))
    with pytest.raises(ConfigError, match="`min_way` is 5, but there are 4 classes"):
        Sampler(np.full(4, 9))
    related = Related([np.arange(3), np.arange(3, 7)], whole=False)
    with pytest.raises(ConfigError, match="none of 2 related sets"):
        Sampler(np.full(7, 9), related=related)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"min_way": 0}, "`min_way` must be at least 1, got 0"),
        ({"max_query": 0}, "`max_query` must be at least 1, got 0"),
        ({"max_support_per_class": 0}, "`max_support_per_class` must be at least 1, got 0"),
        ({"min_way": 9, "max_way": 8}, "`max_way` must be at least `min_way`, 9, got 8"),
        ({"max_support": 49}, "`max_support` must be at least `max_way`, 50, got 49"),
        (
            {"min_log_weight": 1.0, "max_log_weight": 0.0},
            "`max_log_weight` must be at least `min_log_weight`, 1.0, got 0.0",
        ),
    ],
)
def test_limits_that_leave_no_tasks_are_refused(limits, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Limits(**limits)


def test_what_is_uneven_is_seen() -> None:
    """The test itself detects a way that is drawn 30 % more often."""
    rng = np.random.default_rng(0)
    assert uniform(rng.integers(5, 16, 4_000), 5, 15)
    shares = np.ones(11)
    shares[3] = 1.3
    assert not uniform(rng.choice(np.arange(5, 16), 4_000, p=shares / shares.sum()), 5, 15)
    assert not uniform(rng.integers(5, 15, 4_000), 5, 15)


def test_the_same_source_of_chance_gives_the_same_task() -> None:
    sampler = Sampler(np.arange(5, 40))
    one, two = draws(sampler, 3, seed=5), draws(sampler, 3, seed=5)
    for left, right in zip(one, two, strict=True):
        assert left.classes.tolist() == right.classes.tolist()
        assert left.num_support.tolist() == right.num_support.tolist()
