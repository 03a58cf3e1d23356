"""Checks of labeled photos: class names that are nearly equal, and copies of a photo."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

# Copies of a photo, such as a smaller JPEG, agree on a coarse grid at least to this correlation.
_MIN_CORRELATION, _GRID, _MIN_CELLS = 0.998, 16, 64
# Shorter words, such as "cat" and "bat", often differ in one letter only.
_MIN_LETTERS = 5
# Photos that are compared with all others at once.
_BLOCK = 512


def similar_names(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of class names that may mean the same class.

    Such names differ only in case, punctuation, a plural "s", or one letter of a long word.

    Examples:
        >>> from alfa.data import similar_names
        >>> similar_names(["Golden retriever", "golden_retrievers", "cat", "bat", "bed 1", "bed 2"])
        [('Golden retriever', 'golden_retrievers')]
    """
    plain = {name: "".join(c for c in name.casefold() if c.isalnum()) for name in names}
    return [
        (first, second)
        for first, second in combinations(names, 2)
        if _is_similar(plain[first], plain[second])
    ]


def _is_similar(first: str, second: str) -> bool:
    if first.removesuffix("s") == second.removesuffix("s"):
        # Names of punctuation only have no letters to compare.
        return bool(first)
    if abs(len(first) - len(second)) > 1 or min(len(first), len(second)) < _MIN_LETTERS:
        return False
    start = next((n for n, (a, b) in enumerate(zip(first, second)) if a != b), None)  # noqa: B905
    if start is None:
        start = min(len(first), len(second))
    rest = first[start:], second[start:]
    # One letter is replaced, added, or missing.
    skips = (rest[0][1:], rest[1][1:]), (rest[0], rest[1][1:]), (rest[0][1:], rest[1])
    letters = rest[0][:1] + rest[1][:1]
    return any(a == b for a, b in skips) and not any(c.isdigit() for c in letters)


def photo_grid(levels: np.ndarray) -> np.ndarray:
    """Return a short description of a photo, by which `copy_groups` finds its copies.

    It holds the mean levels of the cells of a coarse grid, with mean 0 and norm 1. That of a
    flat or tiny image is zero, so it has no copies.

    Args:
        levels: a photo, ``[channel, height, width]``, with values from 0 to 255.
    """
    _, height, width = levels.shape
    rows, columns = (min(_GRID, size) for size in (height, width))
    sums = np.add.reduceat(levels.astype(np.float64), np.arange(rows) * height // rows, axis=1)
    sums = np.add.reduceat(sums, np.arange(columns) * width // columns, axis=2)
    cells = sums.ravel() - sums.mean()
    norm = float(np.linalg.norm(cells))
    # Less contrast than one level is noise. Few pixels, such as those of a table, agree by chance.
    is_flat = norm < height * width / (rows * columns) * np.sqrt(cells.size)
    is_flat |= rows * columns < _MIN_CELLS
    return np.asarray(np.zeros_like(cells) if is_flat else cells / norm, np.float32)


def copy_groups(grids: np.ndarray) -> np.ndarray:
    """Return a number for each photo that it shares with its copies.

    Copies may have another size or compression, but show the same part of a scene.

    Args:
        grids: the results of `photo_grid`, ``[image, cell]``.

    Examples:
        >>> import numpy as np
        >>> from alfa.data import copy_groups, photo_grid
        >>> photos = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32))
        >>> copy_groups(np.stack([photo_grid(photos[number]) for number in (0, 1, 0, 2)])).tolist()
        [0, 1, 0, 2]
    """
    count = len(grids)
    if not count:
        return np.empty(0, np.int64)
    pairs = []
    for begin in range(0, count, _BLOCK):
        near = np.argwhere(grids[begin : begin + _BLOCK] @ grids.T >= _MIN_CORRELATION)
        pairs.append(near + np.array([begin, 0]))
    first, second = np.concatenate(pairs).T
    graph = coo_matrix((np.ones(len(first)), (first, second)), shape=(count, count))
    groups: np.ndarray = connected_components(graph, directed=False)[1]
    return groups.astype(np.int64)
