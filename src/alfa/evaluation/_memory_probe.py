"""Measurement of the memory that a computation needs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class MemoryProbe(TorchDispatchMode):
    """A context that measures the peak memory of the tensors that operations in it return.

    The same computation gives the same number on every machine and device.

    Attributes:
        bytes: the peak so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0
        self._sizes: dict[StorageWeakRef, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise, torch imports its compiler, which takes seconds.
        return False

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for output in tree_leaves(outputs):
            # Only strided tensors have a storage.
            if isinstance(output, Tensor) and output.layout == torch.strided:
                storage = output.untyped_storage()
                self._sizes[StorageWeakRef(storage)] = storage.nbytes()
        if sum(self._sizes.values()) > self.bytes:
            # Checking all storages takes time, so remove freed ones only at a possible peak.
            self._sizes = {ref: size for ref, size in self._sizes.items() if not ref.expired()}
            self.bytes = max(self.bytes, sum(self._sizes.values()))
        return outputs
