"""Shared fixtures of the tests of the operations."""

import pytest

from alfa.ops import _compiled, _winograd


@pytest.fixture(params=["compiled", "torch"])
def way(request, monkeypatch) -> str:
    """Use compiled kernels or torch; on request, Winograd for all convolutions.

    Winograd then applies to convolutions of any size, one example at a time.
    """
    if request.param == "torch":
        monkeypatch.setattr(_compiled, "numba_available", lambda: False)
    if request.param == "winograd":
        for name in ("_MIN_CHANNELS", "_MIN_TILES", "_MAX_VALUES"):
            monkeypatch.setattr(_winograd, name, 1)
        monkeypatch.setattr(_winograd, "_MIN_INSIDE", 0)
    return request.param
