"""A cache computes the features of each photo once, within its memory."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from alfa.backbones import Backbone, EmbeddingCache, Preprocessing, open_backbone
from alfa.errors import ConfigError
from alfa.testing import register_small_backbone

# Eight features of four bytes.
_BYTES = 32


@pytest.fixture
def small() -> Backbone:
    return open_backbone(register_small_backbone())


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The photos that a backbone has computed."""
    real, seen = Backbone.features, []

    def features(self: Backbone, levels: np.ndarray) -> np.ndarray:
        seen.extend(image.tobytes() for image in levels)
        return real(self, levels)

    monkeypatch.setattr(Backbone, "features", features)
    return seen


def photos(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3, 24, 24), np.uint8)


def test_features_are_those_of_the_backbone(small: Backbone) -> None:
    cache, x = EmbeddingCache(), photos(3)
    expected = small.features(x)
    for _ in range(2):
        found = cache.features(small, x)
        assert np.array_equal(found, expected)
        # The caller may change the result.
        found[:] = 0
    assert cache.features(small, x[:0]).shape == (0, 8)


def test_a_photo_is_computed_once(small: Backbone, computed: list[bytes]) -> None:
    cache, x = EmbeddingCache(), photos(3)
    cache.features(small, x)
    cache.features(small, np.concatenate([x[::-1], x[:1], photos(1, seed=1)]))
    assert len(computed) == len(set(computed)) == len(cache) == 4


def test_weights_crops_and_types_have_their_own_features(small: Backbone) -> None:
    cache, x = EmbeddingCache(), photos(1)
    other = replace(small, preprocessing=Preprocessing(size=24, resize=30, mean=(0.0, 0.0, 0.0)))
    for backbone, levels in (
        (small, x),
        (other, x),
        (small, x.transpose(0, 1, 3, 2)),
        (small, x.astype(np.float32) / 2),
    ):
        found = cache.features(backbone, levels)
        assert np.array_equal(found, backbone.features(levels))
    assert len(cache) == 4


def test_the_least_recently_used_photos_are_dropped(small: Backbone, computed) -> None:
    cache, x = EmbeddingCache(max_bytes=2 * _BYTES), photos(3)
    cache.features(small, x[:2])
    cache.features(small, x[:1])
    cache.features(small, x[2:])
    assert len(cache) == 2
    del computed[:]
    cache.features(small, x[[0, 2]])
    assert computed == []
    cache.features(small, x[1:2])
    assert computed == [x[1].tobytes()]


def test_a_cache_without_memory_computes_every_time(small: Backbone, computed) -> None:
    cache, x = EmbeddingCache(max_bytes=_BYTES - 1), photos(1)
    for _ in range(2):
        assert np.array_equal(cache.features(small, x), small.features(x))
    assert len(cache) == 0
    assert len(computed) == 4


def test_a_cleared_cache_is_empty(small: Backbone, computed) -> None:
    cache, x = EmbeddingCache(max_bytes=_BYTES), photos(1)
    cache.features(small, x)
    cache.clear()
    assert len(cache) == 0
    cache.features(small, x)
    assert len(computed) == 2
    assert len(cache) == 1


def test_a_copied_cache_starts_empty(small: Backbone) -> None:
    cache = EmbeddingCache(max_bytes=99)
    cache.features(small, photos(1))
    for same in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
        assert len(same) == 0
        assert same.max_bytes == 99
        assert np.array_equal(same.features(small, photos(1)), cache.features(small, photos(1)))


def test_threads_share_the_features_of_a_photo(small: Backbone, monkeypatch) -> None:
    """While a thread computes a photo, another one waits for it, and a third one does not."""
    real, entered, proceed, seen = Backbone.features, threading.Event(), threading.Event(), []
    x = photos(2)

    def features(self: Backbone, levels: np.ndarray) -> np.ndarray:
        seen.append(levels.tobytes())
        if np.array_equal(levels, x[:1]):
            entered.set()
            assert proceed.wait(60)
        return real(self, levels)

    monkeypatch.setattr(Backbone, "features", features)
    cache = EmbeddingCache()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(cache.features, small, x[:1])
        assert entered.wait(60)
        second = pool.submit(cache.features, small, x[:1])
        other = pool.submit(cache.features, small, x[1:])
        assert other.result(60).shape == (1, 8)
        assert not first.done()
        assert not second.done()
        proceed.set()
        assert np.array_equal(first.result(60), second.result(60))
    assert len(seen) == len(set(seen)) == 2


def test_a_failed_photo_is_computed_again(small: Backbone, monkeypatch) -> None:
    cache, x = EmbeddingCache(), photos(1)
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise MemoryError

        patch.setattr(Backbone, "features", fail)
        with pytest.raises(MemoryError):
            cache.features(small, x)
    assert np.array_equal(cache.features(small, x), small.features(x))


def test_a_negative_size_is_an_error() -> None:
    with pytest.raises(ConfigError, match="`max_bytes` must be at least 0, got -1"):
        EmbeddingCache(max_bytes=-1)
