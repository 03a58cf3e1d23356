"""The tasks on which commands evaluate runs: changes to them, and whether runs share them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alfa.config import Experiment
    from alfa.data import Tasks
    from alfa.runs import Run

# Options that select among the prepared sizes of a dataset.
_SIZE_OPTIONS = ("size", "stored_size")
# Options that change the inputs of a model or its training, but not the tasks.
_IRRELEVANT = ("augment", "seen_size", *_SIZE_OPTIONS)


def task_changes(
    run: Run,
    *,
    dataset: str | None,
    size: int | None,
    settings: list[str] | None,
    **options: int | None,
) -> list[str]:
    """The changes to the tasks of a run that the options of a command ask for."""
    from alfa.cli._options import check_size
    from alfa.errors import ConfigError

    check_size(size, dataset)
    for setting in settings or []:
        if not setting.strip().startswith("tasks."):
            raise ConfigError(
                f"--set {setting}: an evaluation can change the tasks only, such as "
                "tasks.num_support=5; the rest is as it was trained."
            )
    changes = [f"tasks.{key}={value}" for key, value in options.items() if value is not None]
    if dataset is not None:
        changes += run.dataset_overrides(dataset, size=size)
    return [*changes, *(settings or [])]


def check_same_tasks(
    runs: Sequence[Run], changes: Sequence[list[str]], split: str, *, hint: str = ""
) -> None:
    """Raise if the tasks of the runs, after these changes, are not the same.

    `hint` is another fix for runs whose images differ in size.
    """
    from alfa.errors import ConfigError

    experiments = [run.with_overrides(own) for run, own in zip(runs, changes, strict=True)]
    first, *others = (_task_options(experiment, split) for experiment in experiments)
    for run, other in zip(runs[1:], others, strict=True):
        if other != first:
            raise ConfigError(_difference_text(runs[0].path, run.path, first, other))
    _check_same_images(runs, experiments, split, hint)


def _task_options(experiment: Experiment, split: str) -> dict[str, Any]:
    """The options that determine the tasks."""
    ignored = (*_IRRELEVANT, *(() if split == "val" else ("val_way",)))
    content = experiment.tasks.model_dump()
    return {key: value for key, value in content.items() if key not in ignored}


def _difference_text(first: Path, path: Path, wanted: dict[str, Any], got: dict[str, Any]) -> str:
    names = [name for name in {**wanted, **got} if wanted.get(name) != got.get(name)]
    differences = ", ".join(f"tasks.{n} is {wanted.get(n)} and {got.get(n)}" for n in names)
    hint = "; choose one for both with --dataset" if names == ["dataset"] else ""
    if names and set(names) <= {"way", "shot", "num_query"}:
        hint = f"; give both the same with --{' --'.join(names).replace('_', '-')}"
    return (
        f"{first} and {path} have different tasks ({differences}), and only figures on the same "
        f"tasks can be compared{hint}."
    )


def _check_same_images(
    runs: Sequence[Run], experiments: Sequence[Experiment], split: str, hint: str
) -> None:
    from alfa.build import build_tasks
    from alfa.errors import ConfigError

    contents = [experiment.tasks.model_dump() for experiment in experiments]
    sizes = [{name: own.get(name) for name in _SIZE_OPTIONS} for own in contents]
    # Runs that ask for the same size open the same store.
    if all(own == sizes[0] for own in sizes):
        return
    first, *others = (build_tasks(experiment) for experiment in experiments)
    for run, own, other in zip(runs[1:], sizes[1:], others, strict=True):
        if not _have_same_images(first, other, split):
            dataset = contents[0].get("dataset")
            names = dataset if isinstance(dataset, str) else ", ".join(dataset or ())
            differences = ", ".join(
                f"tasks.{n} is {sizes[0][n]} and {own[n]}" for n in own if own[n] != sizes[0][n]
            )
            raise ConfigError(
                f"{runs[0].path} and {run.path} would be tested on different images of {names} "
                f"({differences}, and the two sizes were not prepared from the same images), "
                "but only figures on the same tasks can be compared; prepare both from the same "
                f"files{hint}."
            )


def _have_same_images(tasks: Tasks, other: Tasks, split: str) -> bool:
    # The names of the images, which may be many, are read only if the stores differ.
    if tasks.signature().data == other.signature().data:
        return True
    listed, others = (each.names_digest(split) for each in (tasks, other))  # type: ignore[arg-type]
    return listed == others
