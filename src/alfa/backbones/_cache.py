"""A cache of features in memory."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np

from alfa.backbones._base import Backbone
from alfa.errors import ConfigError

_Key = tuple[str, bytes]


class EmbeddingCache:
    """Features of the most recent photos, so that a backbone sees each photo only once.

    The key of a photo is a digest of its cropped pixels, together with the fingerprint of the
    backbone. Changed photos, other crops, and other weights therefore have their own entries.
    Several threads may share a cache. A pickled or copied cache starts empty.

    Args:
        max_bytes: the memory for features; the least recently used ones are dropped. The default
            suffices for 13,000 photos with 1,280 features.

    Examples:
        >>> import numpy as np
        >>> from alfa.backbones import EmbeddingCache, open_backbone
        >>> from alfa.testing import register_small_backbone
        >>> backbone = open_backbone(register_small_backbone())
        >>> cache, photos = EmbeddingCache(), np.zeros((2, 3, 24, 24), np.uint8)
        >>> cache.features(backbone, photos).shape, len(cache)
        ((2, 8), 1)
    """

    def __init__(self, *, max_bytes: int = 64 * 2**20) -> None:
        if max_bytes < 0:
            raise ConfigError(f"`max_bytes` must be at least 0, got {max_bytes}.")
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, np.ndarray] = OrderedDict()
        self._running: dict[_Key, Future[np.ndarray]] = {}
        self._num_bytes = 0

    def features(self, backbone: Backbone, levels: np.ndarray) -> np.ndarray:
        """Return `Backbone.features` of images; only new images are computed."""
        found = np.empty((len(levels), backbone.num_features), np.float32)
        for number, image in enumerate(levels):
            found[number] = self._features(backbone, image)
        return found

    def clear(self) -> None:
        """Drop all features."""
        with self._lock:
            self._known.clear()
            self._num_bytes = 0

    def __len__(self) -> int:
        """Return the number of photos in the cache."""
        return len(self._known)

    def __reduce__(self) -> tuple[Callable[[int], EmbeddingCache], tuple[int]]:
        return _empty, (self.max_bytes,)

    def _features(self, backbone: Backbone, image: np.ndarray) -> np.ndarray:
        """Return the features of one image."""
        key = (backbone.fingerprint, _digest(image))
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
            running = self._running.get(key)
            if running is None:
                own = self._running[key] = Future()
        if running is not None:
            # Another thread computes the features of the same photo.
            return running.result()
        try:
            value: np.ndarray = backbone.features(image[None])[0]
        except BaseException as error:
            own.set_exception(error)
            raise
        else:
            own.set_result(value)
            self._add(key, value)
            return value
        finally:
            with self._lock:
                del self._running[key]

    def _add(self, key: _Key, value: np.ndarray) -> None:
        with self._lock:
            self._known[key] = value
            self._num_bytes += value.nbytes
            while self._num_bytes > self.max_bytes:
                _, dropped = self._known.popitem(last=False)
                self._num_bytes -= dropped.nbytes


def _empty(max_bytes: int) -> EmbeddingCache:
    return EmbeddingCache(max_bytes=max_bytes)


def _digest(image: np.ndarray) -> bytes:
    form = f"{image.dtype.str} {image.shape}"
    digest = hashlib.blake2b(form.encode(), digest_size=16)
    digest.update(image.tobytes())
    return digest.digest()
