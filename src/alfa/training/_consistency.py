"""Checks that all processes of a run and all its restarts train the same experiment."""

from __future__ import annotations

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
from alfa.runs import Run


def versions() -> dict[str, str]:
    return {"alfa": alfa.__version__, "torch": torch.__version__}


def check_experiment(before: Run, now: Run) -> None:
    """Raise a CheckpointError if a run is resumed with another experiment."""
    if before.fingerprint != now.fingerprint:
        raise CheckpointError(
            f"{now.path} belongs to another experiment: {', '.join(before.differences(now))}; "
            "undo the change, or train in another folder."
        )


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
    """Verify data files that were modified since a training began, and return all known stamps.

    Every process checks the files on its machine.

    Args:
        processes: all processes.
        tasks: the tasks of this process.
        known: modification stamps of files with the correct content.
        has_begun: the training has begun, so the content matters.
        tell: called with a message before a long verification.

    Raises:
        DataError: the content of a file has changed.
    """
    stamp = tasks.stamp()

    def verify() -> None:
        if has_begun and stamp not in known:
            tell("the data files were modified since the training began: comparing checksums")
            tasks.verify()

    processes.together(verify)
    return sorted({*known, *processes.gathered(stamp)})
