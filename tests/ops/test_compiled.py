"""The choice of compiled kernels, and their number of threads."""

import threading

import pytest
import torch

from alfa.ops import _compiled


@pytest.fixture
def asked_again():
    _compiled.numba_available.cache_clear()
    yield
    _compiled.numba_available.cache_clear()


def failing(monkeypatch, error: Exception) -> None:
    """Replace numba by an installation whose kernels cannot be imported."""

    def mlp_kernels() -> None:
        raise error

    monkeypatch.setattr(_compiled, "mlp_kernels", mlp_kernels)


def test_without_numba_torch_serves(asked_again, monkeypatch, recwarn) -> None:
    failing(monkeypatch, ModuleNotFoundError("No module named 'numba'"))
    assert not _compiled.use_kernels(torch.zeros(3), work=0)
    assert not recwarn


def test_where_numba_does_not_work_torch_serves_and_it_is_said(asked_again, monkeypatch) -> None:
    failing(monkeypatch, RuntimeError("cannot cache function: no locator available"))
    with pytest.warns(UserWarning, match="cannot be used, so alfa uses plain torch.*no locator"):
        assert not _compiled.use_kernels(torch.zeros(3), work=0)


@pytest.mark.parametrize(
    "tensors",
    [
        [torch.zeros(3, dtype=torch.float16)],
        [torch.zeros(3), torch.zeros(3, dtype=torch.float64)],
        [torch.zeros(3, device="meta")],
    ],
    ids=["half", "mixed", "another device"],
)
def test_other_tensors_are_left_to_torch(tensors) -> None:
    assert _compiled.use_kernels(torch.zeros(3), work=0)
    assert not _compiled.use_kernels(*tensors, work=0)


def test_the_kernels_use_as_many_threads_as_torch_in_every_thread() -> None:
    import numba

    found: dict[str, int] = {}

    def look(name: str) -> None:
        _compiled.norm_kernels()
        found[name] = numba.get_num_threads()

    threads = torch.get_num_threads()
    try:
        for number in (1, 2, 1):
            torch.set_num_threads(number)
            look(f"here {number}")
            assert found[f"here {number}"] == min(number, numba.config.NUMBA_NUM_THREADS)
            assert torch.get_num_threads() == number
        other = threading.Thread(target=look, args=("elsewhere",))
        other.start()
        other.join()
        assert found["elsewhere"] == 1
    finally:
        torch.set_num_threads(threads)
