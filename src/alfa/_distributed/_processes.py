"""One run over many processes: tasks are shared out whole, and sums are taken in their order.

Every process holds the whole learner and takes the same outer steps; they differ only in the tasks
that they compute. What one process cannot do, none of them does: an error in one is raised in all.
"""

from __future__ import annotations

import abc
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

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from alfa._distributed._torchrun_env import check_cards, is_launched, is_one_of_many
from alfa._runtime import leave_with_parent
from alfa.errors import (
    AlfaError,
    BusyError,
    CheckpointError,
    ConfigError,
    DamagedError,
    DataError,
    DivergedError,
    LostError,
    Stopped,
)

T = TypeVar("T")

_KINDS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (
        AlfaError,
        BusyError,
        CheckpointError,
        ConfigError,
        DamagedError,
        DataError,
        DivergedError,
        OSError,
        Stopped,
    )
}
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Seconds between two looks at whether other processes have come, and for which they are waited for.
_ASK, _LONGEST = 0.02, 300.0


class Processes(abc.ABC):
    """Those that compute a run together, one of which is this one.

    Attributes:
        rank: the number of this one; the first alone writes.
        count: how many there are.
        local_count: how many of them are on this machine.
    """

    rank: int = 0
    count: int = 1
    local_count: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def own(self, number: int) -> range:
        """This process's part of so many pieces; processes take them in order."""
        return range(number * self.rank // self.count, number * (self.rank + 1) // self.count)

    @abc.abstractmethod
    def sum_in_order(self, rows: Iterable[Tensor]) -> Tensor:
        """The sum of all rows of all processes.

        It is taken row after row, so that only the rows decide it, and not who made which.

        Args:
            rows: of this process, ``[value]`` each; what making them raises is raised everywhere.
        """

    @abc.abstractmethod
    def concatenated(self, make: Callable[[], Tensor]) -> Tensor:
        """The rows of all processes, in the order of the processes.

        Args:
            make: gives the rows of this process, ``[row, value]``; what it raises is raised
                everywhere.
        """

    @abc.abstractmethod
    def together(self, make: Callable[[], T]) -> T:
        """What each process makes for itself; what one of them raises is raised everywhere."""

    @abc.abstractmethod
    def from_first(
        self,
        make: Callable[[], T],
        *,
        encode: Callable[[T], bytes] = lambda made: json.dumps(made).encode(),
        decode: Callable[[bytes], T] = json.loads,
    ) -> T:
        """What the first process alone makes, for all.

        Args:
            make: what it raises is raised everywhere.
            encode: how it is told to the others; by default as JSON.
            decode: how they understand it.
        """

    @abc.abstractmethod
    def any(self, wish: bool) -> bool:
        """Whether one of the processes has this wish."""

    @abc.abstractmethod
    def gathered(self, text: str) -> list[str]:
        """What each process says, in their order."""


class Alone(Processes):
    """This process, and no other."""

    def sum_in_order(self, rows: Iterable[Tensor]) -> Tensor:
        return reduce(Tensor.add_, rows)

    def concatenated(self, make: Callable[[], Tensor]) -> Tensor:
        return make()

    def together(self, make: Callable[[], T]) -> T:
        return make()

    def from_first(
        self,
        make: Callable[[], T],
        *,
        encode: Callable[[T], bytes] = lambda made: json.dumps(made).encode(),
        decode: Callable[[bytes], T] = json.loads,
    ) -> T:
        return make()

    def any(self, wish: bool) -> bool:
        return wish

    def gathered(self, text: str) -> list[str]:
        return [text]


class Joined(Processes):
    """The processes of torch's default process group.

    Args:
        device: where tensors are that are exchanged.
    """

    def __init__(self, device: torch.device) -> None:
        # Only these two have a way of their own to other processes.
        self.device = device if device.type == "cuda" else torch.device("cpu")
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self.local_count = int(os.environ.get("LOCAL_WORLD_SIZE", self.count))

    def sum_in_order(self, rows: Iterable[Tensor]) -> Tensor:
        own = self.together(lambda: [row.to(self.device) for row in rows])
        # A process that has no rows must know what the others are about to send.
        kind = _DTYPES.index(own[0].dtype) if own else 0
        heads = self._numbers([len(own), own[0].numel() if own else 0, kind])
        counts = [head[0] for head in heads]
        width, dtype = max(head[1] for head in heads), _DTYPES[max(head[2] for head in heads)]
        # As in a ring's all-reduce, each process sums a part of the values, so that no more
        # travels than that; but it has all rows of them, and takes them in their order.
        ends = [width * number // self.count for number in range(self.count + 1)]
        parts = list(pairwise(ends))
        begin, end = parts[self.rank]
        sent = [row[a:b] for a, b in parts for row in own]
        got = torch.empty(sum(counts) * (end - begin), dtype=dtype, device=self.device)
        with _peers():
            dist.all_to_all_single(
                got,
                torch.cat(sent) if sent else got.new_empty(0),
                [count * (end - begin) for count in counts],
                [len(own) * (b - a) for a, b in parts],
            )
        summed = reduce(Tensor.add_, got.view(sum(counts), end - begin))
        longest = max(b - a for a, b in parts)
        padded = summed.new_zeros(longest)
        padded[: end - begin] = summed
        every = self._all(padded)
        return torch.cat([part[: b - a] for part, (a, b) in zip(every, parts, strict=True)])

    def concatenated(self, make: Callable[[], Tensor]) -> Tensor:
        own = self.together(make)
        device = own.device
        counts = [count for (count,) in self._numbers([len(own)])]
        padded = own.new_zeros(max(counts), *own.shape[1:], device=self.device)
        padded[: len(own)] = own.to(self.device)
        every = self._all(padded)
        return torch.cat([rows[:n] for rows, n in zip(every, counts, strict=True)]).to(device)

    def together(self, make: Callable[[], T]) -> T:
        made, failure = _attempt(make)
        if self.any(failure is not None):
            told = self.gathered("" if failure is None else _written(failure))
            first = next(number for number, text in enumerate(told) if text)
            raise failure if failure and first == self.rank else _read(told[first])
        return made[0]

    def from_first(
        self,
        make: Callable[[], T],
        *,
        encode: Callable[[T], bytes] = lambda made: json.dumps(made).encode(),
        decode: Callable[[bytes], T] = json.loads,
    ) -> T:
        made, failure = _attempt(make) if self.is_first else ([], None)
        content = b""
        if failure is not None:
            content = _written(failure).encode()
        elif made:
            content = encode(made[0])
        (size, failed), *_ = self._numbers([len(content), int(failure is not None)])
        told = torch.zeros(size, dtype=torch.uint8)
        if self.is_first:
            told = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        with _peers():
            dist.broadcast(told, src=0)
        if failed:
            raise failure or _read(told.numpy().tobytes().decode())
        return made[0] if self.is_first else decode(told.numpy().tobytes())

    def any(self, wish: bool) -> bool:
        return any(wanted for (wanted,) in self._numbers([int(wish)]))

    def gathered(self, text: str) -> list[str]:
        content = text.encode()
        sizes = [size for (size,) in self._numbers([len(content)])]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(content)] = torch.tensor(list(content), dtype=torch.uint8)
        every = self._all(padded)
        return [own[:n].numpy().tobytes().decode() for own, n in zip(every, sizes, strict=True)]

    def _numbers(self, own: Sequence[int]) -> list[list[int]]:
        every: list[list[int]] = torch.stack(self._all(torch.tensor(own))).tolist()
        return every

    def _all(self, own: Tensor) -> list[Tensor]:
        every = [torch.empty_like(own) for _ in range(self.count)]
        with _peers():
            dist.all_gather(every, own)
        return every


ALONE = Alone()


@contextmanager
def joined(device: str = "cpu") -> Iterator[tuple[Processes, str]]:
    """Those that this process was started with, by `torchrun` or by ``alfa train --processes``.

    Args:
        device: where to compute; of several graphics cards each process takes its own.

    Returns:
        The processes, and the device of this one.

    Raises:
        ConfigError: there are too few graphics cards.
        LostError: others have not come.
    """
    if is_launched():
        leave_with_parent()
    if not is_one_of_many():
        yield ALONE, device
        return
    count = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    check_cards(device, count)
    backend = "gloo"
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        torch.cuda.set_device(device)
        # Tensors of both kinds are exchanged: gradients, and what is said about them.
        backend = "cpu:gloo,cuda:nccl"
    with _peers(detailed=True):
        store, rank, count = next(rendezvous("env://"))
        own_store = PrefixStore(_round(store, rank, count), store)
        dist.init_process_group(backend, store=own_store, rank=rank, world_size=count)
    try:
        yield Joined(torch.device(device)), device
    finally:
        dist.destroy_process_group()


def _round(store: Store, rank: int, count: int) -> str:
    """A name that the processes of this start have in common, and those of no other.

    Processes that are started anew may meet in the store of those before them, whose addresses
    are still there, and must not be taken for theirs. So each asks the first one under a name of
    its own, which nobody ever had before.

    Raises:
        LostError: some have not come.
    """
    own = uuid.uuid4().hex
    if rank > 0:
        store.set(f"alfa/ask/{rank}", own)
        try:
            store.wait([f"alfa/answer/{own}"], timedelta(seconds=_LONGEST))
        except RuntimeError:
            raise _not_come([0]) from None
        name: str = store.get(f"alfa/answer/{own}").decode()
        store.set(f"alfa/heard/{name}/{rank}", "yes")
        return name
    left = set(range(1, count))
    deadline = time.monotonic() + _LONGEST
    while left:
        if time.monotonic() > deadline:
            raise _not_come(sorted(left))
        for other in tuple(left):
            # It may be the question of one that is gone, and the right one is yet to come.
            if store.check([f"alfa/ask/{other}"]):
                store.set(f"alfa/answer/{store.get(f'alfa/ask/{other}').decode()}", own)
            if store.check([f"alfa/heard/{own}/{other}"]):
                left.remove(other)
        time.sleep(_ASK)
    return own


def _not_come(ranks: Sequence[int]) -> LostError:
    listed = f"process {ranks[0]} has" if len(ranks) == 1 else f"processes {ranks} have"
    return LostError(
        f"{listed} not come within {_LONGEST:.0f} seconds; look at what was said on the other "
        "machines, and start all of them again."
    )


@contextmanager
def _peers(*, detailed: bool = False) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # torch tells of a connection in several lines, which help only where there never was one.
        told = f" ({' '.join(str(error).split())[:300]})" if detailed else ""
        raise LostError(
            f"another process of this run has ended or cannot be reached{told}; its own words "
            "say why, and `alfa train --resume` goes on."
        ) from None


def _attempt(make: Callable[[], T]) -> tuple[list[T], BaseException | None]:
    """What is made, as the only element, or what it raised that others can be told."""
    try:
        return [make()], None
    except (AlfaError, OSError, Stopped) as failure:
        return [], failure


def _written(failure: BaseException) -> str:
    if isinstance(failure, OSError):
        return json.dumps(["OSError", failure.errno, failure.strerror, str(failure.filename or "")])
    kind = next(cls.__name__ for cls in type(failure).__mro__ if cls.__name__ in _KINDS)
    return json.dumps([kind, str(failure)])


def _read(told: str) -> BaseException:
    kind, *arguments = json.loads(told)
    return _KINDS[kind](*arguments)
