"""Training of one run by several processes that share its tasks.

Every process holds the whole learner and takes the same outer steps; the processes differ only in
the tasks that they compute. An error in one process is raised in every process. The processes
exchange tensors and JSON, never pickles.
"""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import reduce
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from alfa import errors
from alfa._runtime import leave_with_parent
from alfa.errors import AlfaError, ConfigError, LostError, Stopped

T = TypeVar("T")

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Seconds between two checks for other processes at startup, and seconds until startup fails.
_POLL_SECONDS, _STARTUP_SECONDS = 0.02, 300.0
# Seconds between two messages of a process for which the others wait.
_MESSAGE_SECONDS = 60.0
# The variables that every launcher of several processes sets.
_REQUIRED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Processes:
    """The processes that train a run together; this class itself is a single process."""

    rank: int = 0  # of this process; only rank 0 writes files
    count: int = 1  # of all processes
    local_count: int = 1  # of the processes on this machine

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def own(self, number: int) -> range:
        """Return the contiguous share of this process in `number` items."""
        return range(number * self.rank // self.count, number * (self.rank + 1) // self.count)

    def sum_in_order(self, rows: Iterable[Tensor]) -> Tensor:
        """Sum the ``[value]`` rows of all processes, row by row in the order of the processes.

        The sum depends only on the rows and not on how the processes share them. An error in the
        iterable is raised in every process.
        """
        return reduce(Tensor.add_, rows)

    def concatenated(self, make: Callable[[], Tensor]) -> Tensor:
        """Concatenate the ``[row, value]`` tensors that the processes make, in their order."""
        return make()

    def together(self, make: Callable[[], T]) -> T:
        """Call `make` in every process; an error in one process is raised in every process."""
        return make()

    def from_first(self, make: Callable[[], T]) -> T:
        """Call `make` in the first process and send its JSON value to every process."""
        return make()

    def bytes_from_first(self, make: Callable[[], bytes]) -> bytes:
        """Call `make` in the first process and send its bytes to every process."""
        return make()

    def any(self, wish: bool) -> bool:
        """Return True if any process passes True."""
        return wish

    def while_first(self, work: Callable[[Callable[[], None]], None]) -> None:
        """Work in the first process while the others wait, however long it takes.

        `work` gets a function that it must call at least every few minutes. An error is raised in
        every process.
        """
        work(lambda: None)

    def gathered(self, text: str) -> list[str]:
        """Return the texts of all processes, in their order."""
        return [text]


class Joined(Processes):
    """The processes of torch's default process group, which exchange tensors on `device`."""

    def __init__(self, device: torch.device) -> None:
        # The backends transfer tensors of these two devices only.
        self.device = device if device.type == "cuda" else torch.device("cpu")
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self.local_count = int(os.environ.get("LOCAL_WORLD_SIZE", self.count))

    def sum_in_order(self, rows: Iterable[Tensor]) -> Tensor:
        own = self.together(lambda: [row.to(self.device) for row in rows])
        # A process without rows needs the width and type of the others' rows.
        example = own[0] if own else torch.empty(0, dtype=_DTYPES[0])
        shape = [len(own), len(example), _DTYPES.index(example.dtype)]
        counts, widths, dtypes = zip(*self._numbers(shape), strict=True)
        width, dtype = max(widths), _DTYPES[max(dtypes)]
        # As in a ring all-reduce, each process sums one part of the values, which limits the
        # traffic. It has this part of all rows, so it can add them in order.
        parts = list(pairwise(width * number // self.count for number in range(self.count + 1)))
        begin, end = parts[self.rank]
        sent = [row[a:b] for a, b in parts for row in own]
        received = torch.empty(sum(counts) * (end - begin), dtype=dtype, device=self.device)
        with _connection_errors():
            dist.all_to_all_single(
                received,
                torch.cat(sent) if sent else received.new_empty(0),
                [count * (end - begin) for count in counts],
                [len(own) * (b - a) for a, b in parts],
            )
        padded = received.new_zeros(max(b - a for a, b in parts))
        padded[: end - begin] = reduce(Tensor.add_, received.view(sum(counts), end - begin))
        sums = self._all(padded)
        return torch.cat([part[: b - a] for part, (a, b) in zip(sums, parts, strict=True)])

    def concatenated(self, make: Callable[[], Tensor]) -> Tensor:
        own = self.together(make)
        return torch.cat(self._ragged(own.to(self.device))).to(own.device)

    def together(self, make: Callable[[], T]) -> T:
        made: list[T] = []
        error: BaseException | None = None
        try:
            made.append(make())
        except (AlfaError, OSError, Stopped) as caught:
            error = caught
        if self.any(error is not None):
            reports = self.gathered("" if error is None else _to_json(error))
            first = next(rank for rank, report in enumerate(reports) if report)
            raise error if error and first == self.rank else _from_json(reports[first])
        return made[0]

    def from_first(self, make: Callable[[], T]) -> T:
        made: T = json.loads(self.bytes_from_first(lambda: json.dumps(make()).encode()))
        return made

    def bytes_from_first(self, make: Callable[[], bytes]) -> bytes:
        content = self.together(lambda: make() if self.is_first else b"")
        (size,), *_ = self._numbers([len(content)])
        shared = _as_tensor(content) if self.is_first else torch.empty(size, dtype=torch.uint8)
        with _connection_errors():
            dist.broadcast(shared, src=0)
        return _as_bytes(shared)

    def any(self, wish: bool) -> bool:
        return any(wished for (wished,) in self._numbers([int(wish)]))

    def while_first(self, work: Callable[[Callable[[], None]], None]) -> None:
        called = time.monotonic()

        def keep_waiting() -> None:
            # Without a message, torch would give up after half an hour.
            nonlocal called
            if time.monotonic() - called > _MESSAGE_SECONDS:
                self.any(True)
                called = time.monotonic()

        def work_or_wait() -> None:
            if not self.is_first:
                while self.any(False):
                    pass
                return
            try:
                work(keep_waiting)
            finally:
                self.any(False)

        self.together(work_or_wait)

    def gathered(self, text: str) -> list[str]:
        return [_as_bytes(own).decode() for own in self._ragged(_as_tensor(text.encode()))]

    def _ragged(self, own: Tensor) -> list[Tensor]:
        """Gather tensors that differ in their first dimension."""
        sizes = [size for (size,) in self._numbers([len(own)])]
        padded = own.new_zeros(max(sizes), *own.shape[1:])
        padded[: len(own)] = own
        return [each[:size] for each, size in zip(self._all(padded), sizes, strict=True)]

    def _numbers(self, own: Sequence[int]) -> list[list[int]]:
        numbers: list[list[int]] = torch.stack(self._all(torch.tensor(own))).tolist()
        return numbers

    def _all(self, own: Tensor) -> list[Tensor]:
        gathered = [torch.empty_like(own) for _ in range(self.count)]
        with _connection_errors():
            dist.all_gather(gathered, own)
        return gathered


ALONE = Processes()


def is_launched() -> bool:
    """Return True if `torchrun` or ``alfa train --processes`` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_one_of_many() -> bool:
    """Return True if this process is one of several that train a run together."""
    return all(name in os.environ for name in _REQUIRED) and os.environ["WORLD_SIZE"] != "1"


def is_restarted() -> bool:
    """Return True if `torchrun` started this process to replace one that failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0


def launch_name() -> str | None:
    """Return the name that all processes of a launch and their replacements share, if any."""
    # `torchrun` uses "none" if the user gives no name.
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return None if name == "none" else name


def check_cards(device: str, count: int) -> None:
    """Raise a ConfigError unless each of `count` processes on this machine can use its own GPU."""
    if device.startswith("cuda:") and count > 1:
        raise ConfigError(
            f"--device is {device!r}, one GPU for {count} processes on this machine; use cuda, "
            "which gives each process its own GPU, and hide other GPUs with CUDA_VISIBLE_DEVICES."
        )
    if device == "cuda" and torch.cuda.device_count() < count:
        raise ConfigError(
            f"--device is 'cuda', but this machine has {torch.cuda.device_count()} GPUs for "
            f"{count} processes; start at most one process per GPU, or use cpu."
        )


@contextmanager
def joined(device: str = "cpu") -> Iterator[tuple[Processes, str]]:
    """Join the processes that `torchrun` or ``alfa train --processes`` started with this one.

    Yields the processes and the device of this process: with ``"cuda"``, each process takes a GPU
    of its machine.

    Raises:
        ConfigError: there are fewer GPUs than processes.
        LostError: another process did not start.
    """
    if is_launched():
        leave_with_parent()
    if not is_one_of_many():
        yield ALONE, device
        return
    check_cards(device, int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])))
    backend = "gloo"
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        torch.cuda.set_device(device)
        # Gradients are exchanged on the GPU, their sizes on the CPU.
        backend = "cpu:gloo,cuda:nccl"
    with _connection_errors(detailed=True):
        store, rank, count = next(rendezvous("env://"))
        own_store = PrefixStore(_session_name(store, rank, count), store)
        dist.init_process_group(backend, store=own_store, rank=rank, world_size=count)
    try:
        yield Joined(torch.device(device)), device
    finally:
        dist.destroy_process_group()


def _session_name(store: Store, rank: int, count: int) -> str:
    """Agree on a name that only the processes of this start share.

    Restarted processes may find the store of their predecessors with outdated addresses in it. So
    each process asks the first one for the name, under a key that was never used before.
    """
    own = uuid.uuid4().hex
    if rank > 0:
        store.set(f"alfa/ask/{rank}", own)
        try:
            store.wait([f"alfa/answer/{own}"], timedelta(seconds=_STARTUP_SECONDS))
        except RuntimeError:
            raise _not_started([0]) from None
        name: str = store.get(f"alfa/answer/{own}").decode()
        store.set(f"alfa/heard/{name}/{rank}", "yes")
        return name
    missing = set(range(1, count))
    deadline = time.monotonic() + _STARTUP_SECONDS
    while missing:
        if time.monotonic() > deadline:
            raise _not_started(sorted(missing))
        for other in tuple(missing):
            # A question may come from a process that has ended; its successor asks again.
            if store.check([f"alfa/ask/{other}"]):
                store.set(f"alfa/answer/{store.get(f'alfa/ask/{other}').decode()}", own)
            if store.check([f"alfa/heard/{own}/{other}"]):
                missing.remove(other)
        time.sleep(_POLL_SECONDS)
    return own


def _not_started(ranks: Sequence[int]) -> LostError:
    listed = f"process {ranks[0]}" if len(ranks) == 1 else f"processes {ranks}"
    return LostError(
        f"{listed} did not start within {_STARTUP_SECONDS:.0f} seconds; check the output on the "
        "other machines, and start all processes again."
    )


@contextmanager
def _connection_errors(*, detailed: bool = False) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # torch describes a failed connection in several lines, which help only at startup.
        details = f" ({' '.join(str(error).split())[:300]})" if detailed else ""
        raise LostError(
            f"another process of this run has ended or cannot be reached{details}; see its error "
            "message, and continue with `alfa train --resume`."
        ) from None


def _to_json(error: BaseException) -> str:
    if isinstance(error, OSError):
        return json.dumps(["OSError", error.errno, error.strerror, str(error.filename or "")])
    # Other processes may not know a subclass from another module.
    name = next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == errors.__name__)
    return json.dumps([name, str(error)])


def _from_json(report: str) -> BaseException:
    name, *arguments = json.loads(report)
    kind: type[BaseException] = OSError if name == "OSError" else getattr(errors, name)
    return kind(*arguments)


def _as_tensor(content: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(content, np.uint8).copy())


def _as_bytes(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()
