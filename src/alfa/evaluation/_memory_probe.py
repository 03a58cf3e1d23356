"""How much memory some work takes, counted as it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class MemoryProbe(TorchDispatchMode):
    """Counts the bytes of all tensors that the operations inside give and that live at once.

    The same work gives the same number on any machine and device.

    Attributes:
        bytes: the most so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0
        self._sizes: dict[StorageWeakRef, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Torch would import its compiler, which takes seconds, to keep it out of the method below.
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
            # Only a strided tensor has a storage.
            if isinstance(output, Tensor) and output.layout == torch.strided:
                storage = output.untyped_storage()
                self._sizes[StorageWeakRef(storage)] = storage.nbytes()
        if sum(self._sizes.values()) > self.bytes:
            # Some may have gone since; to look at all of them takes time.
            self._sizes = {ref: size for ref, size in self._sizes.items() if not ref.expired()}
            self.bytes = max(self.bytes, sum(self._sizes.values()))
        return outputs
