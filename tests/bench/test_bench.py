"""Measurements: engines compute the same, and their processes take turns."""

from __future__ import annotations

import os
import runpy
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from alfa.bench import measure, worker
from alfa.bench.limit import convolutions
from alfa.bench.measure import compare, rivals_of
from alfa.bench.plain import Plain, PlainModel, WithHigher
from alfa.bench.worker import Worker, WorkerError
from alfa.bench.workloads import WORKLOADS, Workload
from alfa.errors import AlfaError
from alfa.models import Conv4
from alfa.ops import _compiled, _update, _winograd
from alfa.ops.stages import _norm

aten = torch.ops.aten
SMALL = Workload("small", 16, 1, 1, 2)
SINUSOID = WORKLOADS["sinusoid"]


def gradients(learner):
    return [parameter.grad.clone() for parameter in learner.meta_parameters()]


@pytest.mark.usefixtures("without_numba")  # other tests compare compiled kernels with torch
@pytest.mark.parametrize("engine", [Plain, WithHigher])
@pytest.mark.parametrize("work", [SMALL, SINUSOID], ids=["images", "sinusoid"])
def test_every_engine_computes_the_same(engine, work) -> None:
    learner, episode = work.learner(torch.float64), work.episode(torch.float64)
    loss = learner(episode).query_losses.mean()
    loss.backward()
    ours = [loss.detach(), *gradients(learner)]
    theirs = [engine(learner, PlainModel(learner.model))(episode), *gradients(learner)]
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("work", [SMALL, SINUSOID], ids=["images", "sinusoid"])
def test_an_episode_has_the_type_asked_for(work) -> None:
    episode = work.episode(torch.float64)
    assert episode.support_x.dtype == episode.query_x.dtype == torch.float64
    assert SINUSOID.episode(torch.float64).query_y.dtype == torch.float64


@pytest.mark.usefixtures("without_numba")
@pytest.mark.parametrize("num_blocks", [1, 3])
def test_the_plain_model_has_as_many_blocks_as_its_model(num_blocks) -> None:
    model = Conv4((1, 16, 16), 5, filters=4, num_blocks=num_blocks)
    x = torch.randn(3, 1, 16, 16)
    torch.testing.assert_close(PlainModel(model)(x), model(x))


class Products(TorchDispatchMode):
    """Counts the operations of a run."""

    def __init__(self) -> None:
        super().__init__()
        # Products of convolutions by the shapes of their operands, and by input channels.
        self.found: Counter[object] = Counter()
        self.by_channels: Counter[int] = Counter()
        # All other operations that compute or copy.
        self.others: set[str] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        number, channels = self.products(function, args)
        if number:
            shapes = tuple(tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor))
            self.found[function, shapes] += number
            self.by_channels[channels] += number
        elif not (function.is_view or self.maps_weights(function, args)):
            self.others.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))

    @staticmethod
    def maps_weights(function, args) -> bool:
        """Return whether an operation multiplies weights by the Winograd matrix G on both sides."""
        return function is aten.mm.default and set(args[0].shape) == {9, 36}

    @staticmethod
    def products(function, args) -> tuple[int, int]:
        """Return the number of products in an operation, and their input channels."""
        if function is aten.convolution.default:
            return 1, args[1].shape[1]
        if function is aten.convolution_backward.default:
            return sum(args[-1]), args[2].shape[1]
        if Products.maps_weights(function, args):
            return 0, 0
        # Winograd: tiles of images or gradients times weights or tiles.
        bmm = function in (aten.bmm.default, aten.baddbmm_.default)
        if bmm and args[-1].shape[0] % 36 == 0:
            return 1, args[-1].shape[2]
        # Patches of one or two tasks.
        is_product = function is aten.mm.default and {9, 18} & set(args[0].shape)
        return (1, 1) if is_product else (0, 0)


def products_of(run) -> Products:
    with Products() as products:
        run()
    return products


@pytest.fixture
def no_compilation(monkeypatch) -> None:
    """Replace the compiled kernels, which take long to compile and compute no products.

    Norms and updates use torch. The maps of Winograd convolutions do nothing: the products have
    the same shapes, whatever their values.
    """
    torch_only = SimpleNamespace(use_kernels=lambda *tensors, **options: False)
    monkeypatch.setattr(_norm, "compiled", torch_only)
    monkeypatch.setattr(_update, "compiled", torch_only)
    names = ("input_to_tiles", "tiles_to_output", "output_grad_to_tiles", "tiles_to_input_grad")
    maps = {name: lambda *arguments: None for name in names}
    kernels = SimpleNamespace(**maps, g=np.ones((36, 9), np.float32))
    monkeypatch.setattr(_compiled, "winograd_kernels", lambda dtype: kernels)
    monkeypatch.setattr(_compiled, "winograd_available", lambda dtype: True)


@pytest.mark.usefixtures("no_compilation")
@pytest.mark.parametrize("min_tiles", [1, 25], ids=["Winograd", "default"])
@pytest.mark.parametrize("train", [True, False])
def test_the_limit_makes_the_products_of_an_iteration(train, min_tiles, monkeypatch) -> None:
    monkeypatch.setattr(_winograd, "_MAX_VALUES", 10**9)  # do not split products
    monkeypatch.setattr(_winograd, "_MIN_TILES", min_tiles)
    learner, episode = SMALL.learner(), SMALL.episode()
    products = products_of(convolutions(learner, episode, train=train))
    # The two tasks are so small that they share an operand.
    per_step, query = ((4, 9), (2, 3)) if train else ((2, 3), (1, 1))
    first, other = (5 * per_step[layer] + query[layer] for layer in (0, 1))
    assert products.by_channels == {1: first, 48: 3 * other}
    assert aten.bmm.default in {function for function, _ in products.found}  # Winograd's products

    def iteration() -> None:
        if train:
            learner(episode).query_losses.mean().backward()
        else:
            learner(episode, order="none")

    assert products_of(iteration).found == products.found


@pytest.mark.usefixtures("no_compilation")
def test_three_channels_make_the_same_products() -> None:
    work = Workload("small, in color", 16, 3, 1, 2)
    learner, episode = work.learner(), work.episode()
    products = products_of(convolutions(learner, episode, train=True))
    iteration = products_of(lambda: learner(episode).query_losses.mean().backward())
    assert products.found == iteration.found


@pytest.mark.usefixtures("no_compilation")
@pytest.mark.parametrize("channels", [1, 3])
def test_the_limit_makes_nothing_but_products(channels) -> None:
    work = Workload("small", 16, channels, 1, 2)
    products = products_of(convolutions(work.learner(), work.episode(), train=True))
    # Layouts of weights and tiles, and the sums that are part of the products, remain.
    assert products.others <= {"add_", "block_diag", "clone", "new_empty"}


@pytest.mark.parametrize("work", WORKLOADS)
def test_every_workload_has_a_rival(work) -> None:
    assert "plain" in rivals_of(work)
    assert ("limit" in rivals_of(work)) == (WORKLOADS[work].size is not None)


def test_higher_is_left_out_if_it_is_not_installed(monkeypatch) -> None:
    monkeypatch.setattr(measure.importlib.util, "find_spec", lambda name: None)
    assert rivals_of("sinusoid") == ["plain"]


def fake_workers(monkeypatch, times) -> list[str]:
    """Replace workers by ones that report the given times; return the list of their actions."""
    done: list[str] = []

    class Fake:
        def __init__(self, work, engine, *, keep_memory):
            self.engine = engine
            assert keep_memory == (engine == "alfa")
            done.append(f"{engine} starts")

        def run(self, iterations):
            done.append(f"{self.engine} {iterations}")
            return {"seconds": next(times[self.engine]), "peak": None, "loss": 0.0}

        def close(self):
            done.append("closed")

    monkeypatch.setattr(measure, "Worker", Fake)
    monkeypatch.setattr(measure, "_ROUND_SECONDS", 0.5)
    return done


def test_two_processes_take_turns_and_the_best_round_counts(monkeypatch) -> None:
    times = {"alfa": iter([9, 0.1, 0.3, 0.2, 0.25]), "plain": iter([9, 1.0, 0.9, 0.8, 1.1])}
    done = fake_workers(monkeypatch, times)
    result = compare("train-32", "plain", rounds=3)
    assert done[6:] == ["alfa 5", "plain 1"] * 3 + ["closed"] * 2
    assert (result.seconds, result.rival_seconds, result.ratio) == (0.2, 0.8, pytest.approx(4))
    assert result.as_dict()["peak"] is None


def test_the_second_process_starts_when_the_first_is_idle(monkeypatch) -> None:
    times = {"alfa": iter([9, 0.1, 0.1]), "plain": iter([9, 1.0, 1.0])}
    done = fake_workers(monkeypatch, times)
    compare("train-32", "plain", rounds=1)
    assert done[:6] == ["alfa starts", *["alfa 1"] * 2, "plain starts", *["plain 1"] * 2]


def test_a_round_is_never_too_short(monkeypatch) -> None:
    # 1.25 and 2.1 iterations of these times are half a second.
    times = {"alfa": iter([9, 0.4, 0.4]), "plain": iter([9, 0.5 / 2.1, 0.2])}
    done = fake_workers(monkeypatch, times)
    compare("train-32", "plain", rounds=1)
    assert done[6:8] == ["alfa 2", "plain 3"]


def test_both_processes_are_closed_if_one_fails(monkeypatch) -> None:
    done = fake_workers(monkeypatch, {"alfa": iter([9, 0.1]), "plain": iter([])})
    with pytest.raises(StopIteration):
        compare("train-32", "plain", rounds=1)
    assert done[-2:] == ["closed"] * 2


@pytest.mark.usefixtures("without_numba")
def test_a_worker_answers_and_ends(monkeypatch, tmp_path) -> None:
    # Without numba, the worker starts faster, and compiles nothing.
    (tmp_path / "numba.py").write_text("raise ModuleNotFoundError('no numba here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    worker = Worker("sinusoid", "alfa", keep_memory=True)
    try:
        answer = worker.run(2)
        assert answer["seconds"] > 0
        assert answer["peak"] > 10**7
        expected = WORKLOADS["sinusoid"].iteration("alfa")()
        assert answer["loss"] == pytest.approx(expected, rel=1e-6)
    finally:
        worker.close()


def test_a_killed_worker_is_an_error() -> None:
    worker = Worker("train-84", "plain", keep_memory=False)
    worker._process.kill()
    worker._process.wait()  # the pipe is broken
    try:
        with pytest.raises(AlfaError, match=r"train-84' with engine 'plain' .* code -9, .* memory"):
            worker.run(1)
    finally:
        worker.close()


def test_a_worker_that_fails_names_its_work_and_its_exit_code(capfd, monkeypatch, tmp_path) -> None:
    # The worker fails at once, because it cannot import torch.
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    worker = Worker("sinusoid", "limit", keep_memory=True)
    try:
        with pytest.raises(WorkerError, match=r"sinusoid' with engine 'limit' .* code 1, .* above"):
            worker.run(1)
        assert "ImportError: no torch here" in capfd.readouterr().err
    finally:
        worker.close()


def test_without_the_module_resource_there_is_no_peak(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert runpy.run_path(worker.__file__)["_peak"]() is None
