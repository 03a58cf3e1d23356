"""Tasks that only the program that created them can draw."""

from __future__ import annotations

import json

from alfa.data._base import Split, Tasks, register_tasks
from alfa.errors import DataError
from alfa.types import Count, Episode


@register_tasks("in-memory")
class InMemory(Tasks):
    """A placeholder for the tasks of a run that was trained on objects, such as arrays.

    Args:
        description: the class of the tasks.
        way: classes per task.
        shot: support examples per class.
        num_query: query examples per class.

    Raises:
        DataError: always, because these tasks cannot be drawn again.
    """

    def __init__(
        self,
        *,
        description: str = "",
        way: Count | None = None,
        shot: Count | None = None,
        num_query: Count | None = None,
    ) -> None:
        raise DataError(
            f"the tasks of this run ({description}) exist only in the program that trained it; "
            "choose a prepared dataset with --dataset."
        )

    def episode(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> Episode:
        raise NotImplementedError

    @classmethod
    def dataset_overrides(cls, dataset: str, size: int | None) -> list[str]:
        name = json.dumps(dataset, ensure_ascii=False)
        chosen = [] if size is None else [f"tasks.size={size}"]
        return ["tasks.name=images", "tasks.description=none", f"tasks.dataset={name}", *chosen]
