"""Tasks on which commands evaluate runs: overrides, and a check that runs share their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alfa.cli import lazy
from alfa.cli._options import flag
from alfa.errors import ConfigError

# Options that select among the prepared sizes of a dataset.
_SIZE_OPTIONS = ("size", "stored_size")
# Options that change the inputs of a model or its training, but not the tasks.
_IRRELEVANT = ("augment", "seen_size", *_SIZE_OPTIONS)


def task_changes(
    run: lazy.runs.Run,
    *,
    dataset: str | None,
    size: int | None,
    settings: list[str] | None,
    **options: int | None,
) -> list[str]:
    """Return the overrides of a run's tasks that the options of a command request."""
    if size is not None and dataset is None:
        raise ConfigError("--size requires --dataset; add --dataset, or omit --size.")
    for setting in settings or []:
        if not setting.strip().startswith("tasks."):
            raise ConfigError(
                "--set can change only the tasks of a trained run, such as tasks.num_support=5, "
                f"got {setting}."
            )
    changes = [f"tasks.{key}={value}" for key, value in options.items() if value is not None]
    if dataset is not None:
        changes += run.dataset_overrides(dataset, size=size)
    return [*changes, *(settings or [])]


def check_same_tasks(
    runs: Sequence[lazy.runs.Run], changes: Sequence[list[str]], split: str, *, hint: str = ""
) -> None:
    """Raise if the tasks of the runs differ after these changes.

    `hint` is another fix for runs whose images differ in size.
    """
    ignored = (*_IRRELEVANT, *(() if split == "val" else ("val_way",)))
    experiments = [run.with_overrides(own) for run, own in zip(runs, changes, strict=True)]
    contents = [experiment.tasks.model_dump() for experiment in experiments]
    for run, content in zip(runs[1:], contents[1:], strict=True):
        names = [name for name in _different(contents[0], content) if name not in ignored]
        if names:
            raise ConfigError(
                f"{runs[0].path} and {run.path} have different tasks "
                f"({_difference_text(contents[0], content, names)}), but runs can be compared only "
                f"on the same tasks{_hint(names)}."
            )
    _check_same_images(runs, experiments, contents, split, hint)


def _different(first: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [name for name in {**first, **other} if first.get(name) != other.get(name)]


def _difference_text(first: dict[str, Any], other: dict[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"tasks.{n} is {first.get(n)} and {other.get(n)}" for n in names)


def _hint(names: Sequence[str]) -> str:
    if names == ["dataset"]:
        return "; select one dataset with --dataset"
    if set(names) <= {"way", "shot", "num_query"}:
        return f"; set the same value for both with {' and '.join(map(flag, names))}"
    return ""


def _check_same_images(
    runs: Sequence[lazy.runs.Run],
    experiments: Sequence[lazy.config.Experiment],
    contents: Sequence[dict[str, Any]],
    split: str,
    hint: str,
) -> None:
    first, *others = contents
    sizes = [[n for n in _SIZE_OPTIONS if first.get(n) != own.get(n)] for own in others]
    # Runs with the same size open the same store.
    if not any(sizes):
        return
    tasks = [lazy.build.build_tasks(experiment) for experiment in experiments]
    for run, other, content, names in zip(runs[1:], tasks[1:], others, sizes, strict=True):
        if names and not _have_same_images(tasks[0], other, split):
            dataset = first.get("dataset")
            listed = dataset if isinstance(dataset, str) else ", ".join(dataset or ())
            raise ConfigError(
                f"{runs[0].path} and {run.path} would be tested on different images of {listed} "
                f"({_difference_text(first, content, names)}, and the two sizes were prepared from "
                "different images), but runs can be compared only on the same tasks; prepare both "
                f"sizes from the same files{hint}."
            )


def _have_same_images(tasks: lazy.data.Tasks, other: lazy.data.Tasks, split: str) -> bool:
    # Reading the image names can take long, and is needed only if the stores differ.
    if tasks.signature().data == other.signature().data:
        return True
    first, second = (each.names_digest(split) for each in (tasks, other))  # type: ignore[arg-type]
    return first == second
