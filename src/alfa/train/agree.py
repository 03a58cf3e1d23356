"""What all processes of a run, and all its restarts, must have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from alfa.config import Experiment, to_dict
from alfa.data import Tasks
from alfa.errors import ConfigError
from alfa.train.distributed import Processes


def compare_processes(
    processes: Processes, experiment: Experiment, tasks: Tasks, *, versions: Mapping[str, str]
) -> None:
    """Make sure that all processes are about to do the same.

    Args:
        processes: all of them.
        experiment: of this one.
        tasks: likewise.
        versions: of the programs that it uses, by their names.

    Raises:
        ConfigError: they are not; names what differs.
    """
    content = to_dict(experiment)
    # The first process reads them for all.
    content["model"].pop("weights", None)
    own = {
        **dict(_flat(content)),
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
