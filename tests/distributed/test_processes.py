"""Several processes train one run to the same numbers as one process and share errors."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore

import alfa.training._outer_step
from alfa import _distributed as distributed
from alfa._distributed import ALONE, Processes, joined
from alfa.build import build_learner, trainer_options
from alfa.config import Experiment, parse_experiment
from alfa.data import Group, Sinusoids
from alfa.errors import (
    BusyError,
    CheckpointError,
    ConfigError,
    DataError,
    DivergedError,
    LostError,
    Stopped,
)
from alfa.runs import Run
from alfa.training import OuterStep, Trainer, train_run
from alfa.types import Episode

cloudpickle.register_pickle_by_value(sys.modules[__name__])

STROKES = {
    "tasks": {
        "name": "images",
        "dataset": "strokes",
        "way": 3,
        "shot": 1,
        "num_query": 2,
        "size": 16,
    },
    "model": {"name": "conv4", "filters": 4},
    "rule": {"name": "alfa"},
    "inner": {"num_steps": 2},
    "outer": {"num_iterations": 10, "num_tasks": 4, "validate_every": 5, "num_val_tasks": 7},
    "test": {"num_tasks": 5, "ensemble": 2},
    "engine": {"dtype": "float64"},
}


def strokes(**sections: dict[str, Any]) -> Experiment:
    content = {key: {**value, **sections.get(key, {})} for key, value in STROKES.items()}
    return parse_experiment(content)


class _Call:
    """Calls a function when it is unpickled."""

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return self.function, self.arguments


def in_processes(count: int, function: Callable[[Processes], Any]) -> list[Any]:
    """Return the result of a function, or the error it raises, in each of `count` processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A process that has started threads cannot be forked. The fork server has none, so the
    # processes need not import everything again.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["alfa.training", "alfa.ops._mlp_kernels", "torch.distributed", "cloudpickle"]
    )
    with tempfile.TemporaryDirectory() as folder:
        answers = [Path(folder) / str(rank) for rank in range(count)]
        started = []
        for rank, answer in enumerate(answers):
            call = _Call(_one, rank, count, port, function, answer)
            # Another process cannot import the functions of a test.
            process = context.Process(target=cloudpickle.loads, args=(cloudpickle.dumps(call),))
            process.start()
            started.append(process)
        for process in started:
            process.join(100)
            process.kill()
        return [cloudpickle.loads(a.read_bytes()) if a.exists() else "gone" for a in answers]


def _one(rank: int, count: int, port: int, function: Any, answer: Path) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    try:
        with joined() as (processes, _):
            found = function(processes)
    except BaseException as error:
        found = error
    answer.write_bytes(cloudpickle.dumps(found))


@given(number=st.integers(0, 50), count=st.integers(1, 9))
def test_every_piece_belongs_to_one_process(number: int, count: int) -> None:
    ranges = []
    for rank in range(count):
        process = Processes()
        process.rank, process.count = rank, count
        ranges.append(process.own(number))
    assert [piece for own in ranges for piece in own] == list(range(number))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 2, 1001])
def test_a_sum_is_taken_in_the_order_of_the_rows(
    count: int, dtype: torch.dtype, width: int
) -> None:
    # The last of three processes has no rows.
    owners = {2: [[0, 1, 2], [3, 4]], 3: [[0, 1, 2, 3], [4], []]}[count]
    rows = torch.randn(5, width, dtype=dtype) * 10.0 ** torch.arange(5).unsqueeze(1)

    def total(processes: Processes) -> torch.Tensor:
        return processes.sum_in_order(rows[i].clone() for i in owners[processes.rank])

    expected = ALONE.sum_in_order(row.clone() for row in rows)
    for found in in_processes(count, lambda processes: total(processes).tolist()):
        assert found == expected.tolist()


def test_processes_hear_of_each_other() -> None:
    def talk(processes: Processes) -> list[Any]:
        rank = processes.rank
        return [
            processes.gathered("ab" * rank),
            processes.any(rank == 1),
            processes.any(False),
            processes.from_first(lambda: {"rank": rank}),
            processes.together(lambda: rank),
            processes.concatenated(lambda: torch.full((rank, 2), rank)).tolist(),
            processes.is_first,
        ]

    found = in_processes(3, talk)

    shared = [["", "ab", "abab"], True, False, {"rank": 0}]
    rows = [[1, 1], [2, 2], [2, 2]]
    assert found == [[*shared, rank, rows, rank == 0] for rank in range(3)]


@pytest.mark.parametrize(
    "error",
    [
        DataError("the store is gone."),
        DivergedError("a loss is nan."),
        Stopped(),
        OSError(28, "No space left on device", "/run/last"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("how", ["together", "rows", "concatenated", "from_first"])
def test_what_fails_in_one_process_fails_in_all(error: BaseException, how: str) -> None:
    def fail(processes: Processes) -> Any:
        wrong = 0 if how == "from_first" else 1

        def make() -> torch.Tensor:
            if processes.rank == wrong:
                raise error
            return torch.zeros(2, 1)

        if how == "rows":
            return processes.sum_in_order(make() for _ in range(2))
        methods: Any = {"together": processes.together, "concatenated": processes.concatenated}
        return methods.get(how, processes.from_first)(make)

    for found in in_processes(2, fail):
        assert type(found) is type(error)
        assert str(found) == str(error)


def test_a_process_that_is_gone_is_missed() -> None:
    def leave(processes: Processes) -> Any:
        if processes.rank == 1:
            os._exit(1)
        return processes.gathered("still here")

    first, second = in_processes(2, leave)

    assert second == "gone"
    assert isinstance(first, LostError)
    assert "another process of this run has ended" in str(first)


def sines(**sections: dict[str, Any]) -> Experiment:
    """Return an experiment that is faster than one on images."""
    content = {
        "tasks": {"name": "sinusoid", "num_support": 5, "num_query": 5},
        "model": {"name": "mlp", "hidden": [8]},
        "rule": {"name": "alfa"},
        "outer": {"num_iterations": 20, "num_tasks": 4, "validate_every": 5, "num_val_tasks": 6},
        "test": {"num_tasks": 5, "ensemble": 2},
        "engine": {"dtype": "float64", "tasks_at_once": 1},
    }
    return parse_experiment({k: {**v, **sections.get(k, {})} for k, v in content.items()})


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process."""
    path = tmp_path_factory.mktemp("alone") / "run"
    torch.set_num_threads(1)
    train_run(Run.new(path, sines()))
    return path


def _compare(path: Path, other: Path, *, exactly: bool = True) -> None:
    """Compare weights exactly, if asked, and metrics up to the rounding of stacked tasks."""
    own, others = (Run(p).metrics for p in (path, other))
    assert [list(record) for record in own] == [list(record) for record in others]
    for record, expected in zip(own, others, strict=True):
        assert record == pytest.approx(expected, rel=1e-10)
    for name in ("last", "best"):
        a, b = (Run(p).load_checkpoint(name).tensors for p in (path, other))
        assert a.keys() == b.keys()
        for key in a:
            allowed = 0 if exactly else 1e-10 * float(b[key].abs().max())
            assert float((a[key] - b[key]).abs().max()) <= allowed, key
    results = [Run(p).result or {} for p in (path, other)]
    for key in ("test", "ensemble"):
        found, expected = (result[key] for result in results)
        assert found["accuracy"] == expected["accuracy"]
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-10)


def _train(path: Path, experiment: Experiment, count: int, **options: Any) -> None:
    def run(processes: Processes) -> Any:
        return train_run(Run.new(path, experiment), processes=processes, **options)["test"]

    found = in_processes(count, run)
    assert isinstance(found[0], dict), found
    assert found == [found[0]] * count


def test_any_number_of_processes_gives_the_same_weights(tmp_path) -> None:
    one_by_one = strokes(engine={"dtype": "float64", "tasks_at_once": 1})
    torch.set_num_threads(1)
    train_run(Run.new(tmp_path / "1", one_by_one))
    for count in (2, 3):
        _train(tmp_path / str(count), one_by_one, count)
        # Usually identical to the last bit; a busy machine once gave a difference of 3e-14.
        _compare(tmp_path / str(count), tmp_path / "1", exactly=False)
        result = Run(tmp_path / str(count)).result
        assert result is not None
        assert result["engine"]["processes"] == count


@pytest.mark.parametrize("count", [2, 3, 5])
def test_also_more_processes_than_tasks(count: int, alone: Path, tmp_path) -> None:
    _train(tmp_path / "run", sines(), count)
    _compare(tmp_path / "run", alone)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_stacks_of_tasks_differ_by_rounding_only(count: int, alone: Path, tmp_path) -> None:
    # As many at once as leave a stack for each process: four, or two.
    _train(tmp_path / "run", sines(engine={"tasks_at_once": None}), count)
    _compare(tmp_path / "run", alone, exactly=False)


def _after(count: int) -> Callable[[], bool]:
    asked: list[bool] = []
    return lambda: len(asked) >= count or bool(asked.append(True))


@pytest.mark.parametrize("asked", [3, 5, 7, 34])
def test_a_run_stopped_under_one_goes_on_under_two(asked: int, alone: Path, tmp_path) -> None:
    path = tmp_path / "run"
    with pytest.raises(Stopped):
        # In training, at its first validation, within it, and in the final test.
        train_run(Run.new(path, sines()), should_stop=_after(asked))
    _train(path, sines(), 2, resume=True)
    _compare(path, alone)


def test_a_run_stopped_under_two_goes_on_under_one(alone: Path, tmp_path) -> None:
    path = tmp_path / "run"

    def run(processes: Processes) -> Any:
        # One process is asked to stop, and all of them stop.
        stop = _after(3) if processes.rank == 1 else lambda: False
        return train_run(Run.new(path, sines()), processes=processes, should_stop=stop)

    assert [type(found) for found in in_processes(2, run)] == [Stopped, Stopped]
    last = Run.new(path, sines()).load_last()
    assert last is not None
    assert last.progress["iteration"] == 4
    train_run(Run.new(path, sines()), resume=True)
    _compare(path, alone)


def test_nothing_is_lost_with_a_process(alone: Path, tmp_path) -> None:
    path = tmp_path / "run"

    def run(processes: Processes) -> Any:
        def leave(progress: Any) -> None:
            if processes.rank == 1 and progress.iteration == 8:
                os._exit(1)

        return train_run(Run.new(path, sines()), processes=processes, on_progress=leave)

    first, second = in_processes(2, run)

    assert (type(first), second) == (LostError, "gone")
    last = Run.new(path, sines()).load_last()
    assert last is not None
    assert last.progress["iteration"] == 8
    train_run(Run.new(path, sines()), resume=True)
    _compare(path, alone)


@pytest.mark.parametrize("max_skipped", [0, 5])
def test_a_task_that_diverges_in_one_process(max_skipped: int, tmp_path) -> None:
    experiment = sines(outer={"max_skipped": max_skipped})

    def run(processes: Processes) -> Any:
        check = alfa.training._outer_step.check_finite

        def check_finite(support: torch.Tensor, query: torch.Tensor, **options: Any) -> None:
            # Task 7 is the last of the second iteration and belongs to the second process.
            bad = [float("nan") if index == 7 else 0.0 for index in options["indices"]]
            check(support, query + torch.tensor(bad), **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(alfa.training._outer_step, "check_finite", check_finite)
            path = tmp_path / str(processes.count)
            return train_run(Run.new(path, experiment), processes=processes)["test"]

    found = in_processes(2, run)

    if max_skipped == 0:
        assert [type(error) for error in found] == [DivergedError, DivergedError]
        assert "of task 7 is nan at iteration 1" in str(found[0])
        assert str(found[0]) == str(found[1])
    else:
        assert run(ALONE) == pytest.approx(found[0])
        _compare(tmp_path / "2", tmp_path / "1")
        assert Run(tmp_path / "2").metrics[-1]["skipped"] == 1


def test_processes_with_different_experiments_are_refused(tmp_path) -> None:
    def run(processes: Processes) -> Any:
        # Neither option changes the training itself.
        others = {"test": {"num_tasks": 9}, "engine": {"memory": "recompute"}}
        experiment = sines(**({} if processes.is_first else others))
        return train_run(Run.new(tmp_path / "run", experiment), processes=processes)

    for found in in_processes(2, run):
        assert isinstance(found, ConfigError)
        assert "test.num_tasks is 9 in process 1, but 5 in process 0; engine.memory" in str(found)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_that_cannot_be_used_is_refused_by_all(resume: bool, alone: Path) -> None:
    def run(processes: Processes) -> Any:
        return train_run(Run.new(alone, sines()), processes=processes, resume=resume)

    with Run(alone).files.lock():
        found = in_processes(2, run)
    assert [type(error) for error in found] == [BusyError if resume else CheckpointError] * 2
    assert ("is in use by another process" if resume else "is not empty") in str(found[1])


def test_processes_that_do_not_come_are_named(monkeypatch) -> None:
    monkeypatch.setattr(distributed, "_STARTUP_SECONDS", 0.1)
    store = HashStore()
    store.set("alfa/ask/1", "of one that is gone")
    with pytest.raises(LostError, match=r"processes \[1, 2\] did not start within"):
        distributed._session_name(store, 0, 3)
    with pytest.raises(LostError, match="process 0 did not start within"):
        distributed._session_name(HashStore(), 1, 3)


@pytest.mark.parametrize(("device", "told"), [("cuda", "0 GPUs"), ("cuda:1", "one GPU for 2")])
def test_graphics_cards_that_are_not_there_are_refused(device: str, told: str, monkeypatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "x"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match=told), joined(device):
        pass


def test_rows_are_in_the_order_of_the_tasks_whatever_their_sizes() -> None:
    class Grouped(Sinusoids):
        """Every other task has a different size."""

        def groups(self, first: int, **options: Any) -> list[Group]:
            (whole,) = super().groups(first, **options)
            parts = ("support_x", "support_y", "query_x", "query_y")
            return [
                Group(
                    whole.indices[begin::2],
                    Episode(*(getattr(whole.episode, part)[begin::2] for part in parts)),
                )
                for begin in range(2)
            ]

    rows = []
    for tasks in (Sinusoids(num_support=5), Grouped(num_support=5)):
        experiment = sines()
        learner = build_learner(experiment, tasks)
        step = OuterStep(Trainer(learner, tasks, **trainer_options(experiment, learner, tasks)))
        step.make_plan()
        rows.append(torch.stack(list(step._rows(3))))
    assert rows[0].equal(rows[1])


def test_tasks_of_different_sizes(tmp_path) -> None:
    content: dict[str, Any] = {
        "tasks": {"name": "meta-dataset", "dataset": "strokes", "size": 16, "max_way": 6},
        "model": {"name": "conv4", "filters": 4},
        "init": {"name": "prototype-head"},
        "inner": {"num_steps": 2, "order": "first", "batch_norm": "inductive"},
        "outer": {"num_iterations": 4, "num_tasks": 3, "validate_every": 2, "num_val_tasks": 3},
        "test": {"num_tasks": 3, "ensemble": 2},
        "engine": {"dtype": "float64"},
    }
    content["tasks"] |= {"max_support": 20, "max_query": 2}
    train_run(Run.new(tmp_path / "one", parse_experiment(content)))
    _train(tmp_path / "two", parse_experiment(content), 2)
    _compare(tmp_path / "two", tmp_path / "one", exactly=False)
