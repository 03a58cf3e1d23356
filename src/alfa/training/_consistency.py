"""Checks that all processes of a run, and all its restarts, train the same experiment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from alfa._distributed import Processes
from alfa.data import Tasks
from alfa.errors import CheckpointError, ConfigError
from alfa.runs import Run


def check_experiment(before: Run, now: Run) -> None:
    """Raise unless a run is resumed with the experiment that it began with.

    Raises:
        CheckpointError: names what differs.
    """
    if before.fingerprint != now.fingerprint:
        raise CheckpointError(
            f"{now.path} belongs to another experiment: {', '.join(before.differences(now))}; "
            "leave the change out, or train in another folder."
        )


def check_data(before: Run, tasks: Tasks) -> None:
    """Raise unless the data is what the run has been trained on.

    Raises:
        CheckpointError: the data was prepared from other images or in another way.
    """
    then, now = before.signature.data, tasks.signature().data
    if then and now and then != now:
        raise CheckpointError(
            f"the data of {before.path} is not what it has been trained on: it was prepared anew, "
            "from other images or in another way; resume with the data it had, or train again in "
            "another folder."
        )


def compare_processes(
    processes: Processes, config: Mapping[str, Any], tasks: Tasks, *, versions: Mapping[str, str]
) -> None:
    """Raise unless all processes are about to do the same.

    Args:
        processes: all of them.
        config: the experiment of this process as plain values.
        tasks: the tasks of this process.
        versions: the versions of the programs that it uses, by name.

    Raises:
        ConfigError: names what differs.
    """
    content = dict(_flat(config))
    # The first process reads them for all.
    content.pop("model.weights", None)
    own = {
        **content,
        "the data": asdict(tasks.signature()),
        **{f"the version of {name}": version for name, version in versions.items()},
    }
    first, *others = (json.loads(text) for text in processes.gathered(json.dumps(own)))
    for number, other in enumerate(others, start=1):
        differing = [
            f"{key} is {other.get(key)!r} in process {number}, but {first.get(key)!r} in process 0"
            for key in {**first, **other}
            if other.get(key) != first.get(key)
        ]
        if differing:
            raise ConfigError(f"{'; '.join(differing)}; all machines must have the same.")


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Options by the names that ``--set`` knows."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
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
    """Make sure that the files of the tasks still hold what a run has been trained on.

    Only files that somebody has written or copied since are read.

    Args:
        processes: all of them; each looks at its own files.
        tasks: of this one.
        known: stamps of files that held it.
        has_begun: something has been trained already.
        tell: is told why it takes a while.

    Returns:
        All stamps that are known now.

    Raises:
        DataError: they hold something else.
    """
    own = tasks.stamp()

    def verify() -> None:
        if has_begun and own not in known:
            tell("the files of the data are not those of before: comparing their checksums")
            tasks.verify()

    processes.together(verify)
    return sorted({*known, *processes.gathered(own)})
