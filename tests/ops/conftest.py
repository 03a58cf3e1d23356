"""What the tests of the operations share."""

import pytest

from alfa.ops import _compiled


@pytest.fixture(params=["compiled", "torch"])
def way(request, monkeypatch) -> str:
    """Compiled kernels, or torch in their place."""
    if request.param == "torch":
        monkeypatch.setattr(_compiled, "_have_numba", lambda: False)
    return request.param
