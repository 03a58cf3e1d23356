"""Checks that all processes of a run and all its restarts train the same experiment."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import alfa
from alfa._distributed import Processes
from alfa.data import Tasks
from alfa.errors import CheckpointError, ConfigError


def versions() -> dict[str, str]:
    return {"alfa": alfa.__version__, "torch": torch.__version__}


def check_data(path: Path, before: str, tasks: Tasks) -> None:
    """Raise a CheckpointError if the data of the tasks differs from the data `before`."""
    now = tasks.signature().data
    if before and now and before != now:
        raise CheckpointError(
            f"the data differs from the data that {path} was trained on: it was prepared again "
            "from other images or in another way; resume with the original data, or train again "
            "in another folder."
        )


def compare_processes(processes: Processes, config: Mapping[str, Any], tasks: Tasks) -> None:
    """Raise a ConfigError if the processes differ in their experiment, data, or versions."""
    own = dict(_flatten(config))
    # Only the first process reads the weights.
    own.pop("model.weights", None)
    own["the data"] = asdict(tasks.signature())
    own |= {f"the version of {name}": version for name, version in versions().items()}
    first, *others = (json.loads(text) for text in processes.gathered(json.dumps(own)))
    for rank, other in enumerate(others, start=1):
        differences = [
            f"{key} is {other.get(key)!r} in process {rank}, but {first.get(key)!r} in process 0"
            for key in {**first, **other}
            if other.get(key) != first.get(key)
        ]
        if differences:
            raise ConfigError(f"{'; '.join(differences)}; use the same on all machines.")


def _flatten(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield options by their names in ``--set``."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def check_files(
    processes: Processes,
    tasks: Tasks,
    *,
    known: Sequence[str],
    has_begun: bool,
    tell: Callable[[str], None] = lambda message: None,
) -> list[str]:
    """Raise a DataError if a data file has changed since the training began.

    Every process verifies the files on its machine if their modification stamp is not in `known`.
    Return the stamps that are known now.
    """
    stamp = tasks.stamp()

    def verify() -> None:
        if has_begun and stamp not in known:
            tell("the data files were modified since the training began: comparing checksums")
            tasks.verify()

    processes.together(verify)
    return sorted({*known, *processes.gathered(stamp)})
