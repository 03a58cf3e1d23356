"""Winograd convolutions equal torch's convolutions, and run if they are faster."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from alfa.ops import _compiled, _winograd
from alfa.ops._conv import Kernel, Term, conv, conv_backward

# Examples, height, width, tasks, channels in and out.
SHAPES = [
    (3, 6, 6, 1, 3, 5),
    (2, 5, 7, 2, 4, 3),
    (4, 1, 1, 1, 2, 2),
    (2, 1, 4, 3, 2, 6),
    (3, 8, 3, 2, 5, 1),
    (5, 9, 14, 1, 11, 20),
    (3, 9, 5, 2, 11, 17),
]


def draw(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Return x, W, and dz."""
    num_examples, height, width, num_tasks, num_in, num_out = shape
    images = num_examples, height, width
    sizes = (
        (*images, num_tasks * num_in),
        (num_tasks, num_out, num_in, 3, 3),
        (*images, num_tasks * num_out),
    )
    x, weight, dz = (torch.randn(size, dtype=torch.float64).to(dtype) for size in sizes)
    return x, weight, dz


def products(x: Tensor, weight: Tensor, dz: Tensor) -> list[Tensor]:
    """Return z, dx, and dW."""
    u = _winograd.transform(weight)
    term = (dz, x, u)
    return [_winograd.conv((x, u)), *_winograd.conv_backward(term, shape=weight.shape)]


def plain(x: Tensor, weight: Tensor, dz: Tensor) -> list[Tensor]:
    """Return the same results from torch."""
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    images = x.permute(0, 3, 1, 2)
    z = torch.nn.functional.conv2d(
        images, weight.flatten(0, 1), padding=1, groups=weight.shape[0]
    ).permute(0, 2, 3, 1)
    return [z.detach(), *torch.autograd.grad(z, (x, weight), dz)]


@pytest.mark.parametrize("most_values", [1, 500, 10**6])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_equals_plain_torch(shape, most_values: int, monkeypatch) -> None:
    monkeypatch.setattr(_winograd, "_MAX_VALUES", most_values)
    given = draw(shape)
    for found, expected in zip(products(*given), plain(*given), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_tensors_need_not_be_contiguous() -> None:
    given = draw(SHAPES[-1])
    strided = [torch.stack([tensor, tensor], dim=-1)[..., 0] for tensor in given]
    assert not any(tensor.is_contiguous() for tensor in strided)
    for found, expected in zip(products(*strided), plain(*given), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("most_values", [1, 10**6])
def test_products_are_summed(most_values: int, monkeypatch) -> None:
    monkeypatch.setattr(_winograd, "_MAX_VALUES", most_values)
    given = [draw(SHAPES[1]) for _ in range(2)]
    shape = given[0][1].shape
    expected = [one + other for one, other in zip(*(plain(*some) for some in given), strict=True)]
    z = _winograd.conv(*((x, _winograd.transform(weight)) for x, weight, _ in given))
    terms = [(dz, x, _winograd.transform(weight)) for x, weight, dz in given]
    for found, right in zip(
        [z, *_winograd.conv_backward(*terms, shape=shape)], expected, strict=True
    ):
        torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)


def test_only_what_is_asked_for_is_made() -> None:
    given = draw(SHAPES[1])
    (x, weight, dz), (_, dx, dw) = given, plain(*given)
    u, shape = _winograd.transform(weight), weight.shape
    found, nothing = _winograd.conv_backward((dz, None, u), shape=shape)
    assert nothing is None
    torch.testing.assert_close(found, dx, rtol=1e-12, atol=1e-12)
    nothing, found = _winograd.conv_backward((dz, x, None), shape=shape)
    assert nothing is None
    torch.testing.assert_close(found, dw, rtol=1e-12, atol=1e-12)
    both = [(dz, None, u), (dz, x, None)]
    for found, right in zip(_winograd.conv_backward(*both, shape=shape), (dx, dw), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)


def term_by_term(x: Tensor, weight: Tensor, dz: Tensor) -> list[Tensor]:
    """Return the same results for one task, with every sum in a fixed order.

    The error of torch's convolutions depends on the number of sums that a CPU computes in parallel:
    the gradient in W has 2.5 times the error with AVX2 than with AVX-512.
    """
    (_, height, width, num_in), num_out = x.shape, weight.shape[1]
    x, dz = (torch.nn.functional.pad(images, (0, 0, 1, 1, 1, 1)) for images in (x, dz))
    inside = dz[:, 1:-1, 1:-1]
    z, dx, dw = torch.zeros_like(inside), torch.zeros_like(x[:, 1:-1, 1:-1]), weight * 0
    for i, j in itertools.product(range(3), range(3)):
        before = x[:, i : i + height, j : j + width]
        after = dz[:, 2 - i : 2 - i + height, 2 - j : 2 - j + width]
        for k in range(num_in):
            z += before[..., k, None] * weight[0, :, k, i, j]
        for k in range(num_out):
            dx += after[..., k, None] * weight[0, k, :, i, j]
        for one, other in zip(inside.flatten(0, 2), before.flatten(0, 2), strict=True):
            dw[0, :, :, i, j] += one[:, None] * other
    return [z, dx, dw]


@pytest.mark.parametrize("num_channels", [48, 128])
def test_single_precision_loses_little_more_than_plain_sums(num_channels: int) -> None:
    given = draw((9, 8, 8, 1, num_channels, num_channels), torch.float32)
    exact = plain(*(tensor.double() for tensor in given))
    ours, theirs = (
        [(found - right).norm() for found, right in zip(some, exact, strict=True)]
        for some in (products(*given), term_by_term(*given))
    )
    assert all(own < 2.3 * other for own, other in zip(ours, theirs, strict=True)), (ours, theirs)


def test_the_number_of_threads_does_not_change_a_digit() -> None:
    given = draw((8, 12, 12, 2, 16, 16))
    threads = torch.get_num_threads()
    try:
        results = []
        for number in (1, 2):
            torch.set_num_threads(number)
            results.append(products(*given))
    finally:
        torch.set_num_threads(threads)
    for left, right in zip(*results, strict=True):
        assert torch.equal(left, right)


def test_what_is_not_a_number_stays_in_its_example() -> None:
    x, weight, dz = draw((3, 4, 4, 1, 2, 2))
    x[1, 2, 2, 0] = dz[1, 2, 2, 0] = float("nan")
    z, dx, dw = products(x, weight, dz)
    assert [bool(images.isnan().any()) for images in z] == [False, True, False]
    assert [bool(images.isnan().any()) for images in dx] == [False, True, False]
    assert dw.isnan().any()


FITTING = {"x": (10, 10, 10, 128), "shape": (1, 128, 128, 3, 3), "stride": 1}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"stride": 2}, False),
        ({"shape": (1, 128, 128, 1, 1)}, False),
        ({"shape": (1, 48, 64, 3, 3)}, True),
        ({"shape": (1, 48, 32, 3, 3)}, False),
        ({"x": (2, 10, 10, 128)}, False),
        ({"x": (10, 9, 9, 128)}, False),
    ],
    ids=str,
)
def test_it_is_used_where_it_is_faster(change, expected: bool) -> None:
    case = {**FITTING, **change}
    x = torch.empty(case["x"])
    assert _winograd.is_faster(x, case["shape"], case["stride"]) == expected
    assert not _winograd.is_faster(x.to("meta"), case["shape"], case["stride"])


def test_torch_serves_where_the_maps_cannot_be_compiled(monkeypatch) -> None:
    def fail(dtype: torch.dtype) -> None:
        raise AttributeError("another numba")

    monkeypatch.setattr(_compiled, "winograd_kernels", fail)
    _compiled.winograd_available.cache_clear()
    try:
        with pytest.warns(
            UserWarning, match="alfa uses plain torch.*AttributeError: another numba"
        ):
            assert not _winograd.is_faster(torch.empty(FITTING["x"]), FITTING["shape"], 1)
    finally:
        _compiled.winograd_available.cache_clear()


def test_weights_of_another_type_are_left_to_torch() -> None:
    x, weight = torch.empty(FITTING["x"]), torch.zeros(FITTING["shape"])
    assert Kernel.of(weight, x).is_winograd
    assert not Kernel.of(weight.half(), x).is_winograd


def test_torch_serves_without_numba(without_numba) -> None:
    assert not _winograd.is_faster(torch.empty(FITTING["x"]), FITTING["shape"], 1)


@pytest.mark.parametrize("num_channels", [48, 40], ids=["many channels", "few"])
def test_convolutions_make_use_of_it(num_channels: int, monkeypatch) -> None:
    x, weight, dz = draw((9, 10, 10, 1, num_channels, num_channels))
    assert _compiled.winograd_available(x.dtype)  # compile before the spy counts
    used, real = [], _compiled.winograd_kernels
    monkeypatch.setattr(_compiled, "winograd_kernels", lambda dtype: used.append(1) or real(dtype))
    kernel = Kernel.of(weight, x)
    found = [conv((x, kernel)), *conv_backward(Term(dz, x, kernel))]
    assert bool(used) == (num_channels == 48)
    for ours, expected in zip(found, plain(x, weight, dz), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-11)
