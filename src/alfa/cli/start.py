"""First steps of commands that compute: the process, the run, and its tasks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alfa.cli import lazy
from alfa.cli._options import flag
from alfa.errors import ConfigError

# Options that select among the prepared sizes of a dataset.
_SIZE_OPTIONS = ("size", "stored_size")
# Options that change the inputs of a model or its training, but not the tasks.
_IRRELEVANT = ("augment", "seen_size", *_SIZE_OPTIONS)
# Options that change only the tasks of one split.
_OF_SPLIT = {"train": ("train_way", "train_shot", "train_num_query"), "val": ("val_way",)}


@dataclass(frozen=True)
class Computing:
    """The options of a command that select the device and the output format."""

    device: str = "cpu"
    threads: int | None = None
    as_json: bool = False

    def set_up(self, experiment: lazy.config.Experiment, *, share: int = 1) -> None:
        """Check the device, tune the process, and set the number of CPU threads.

        `share` is the number of processes that share the machine.
        """
        runtime = lazy._runtime
        runtime.check_device(self.device, name="--device")
        runtime.tune()
        # The operations of a perceptron take less time than distributing them over threads.
        is_small = experiment.model.name == "mlp"
        runtime.set_threads(self.threads, small=is_small, share=share)

    def open_run(self, path: Path) -> lazy.runs.Run:
        """Open a run, and prepare the process for it."""
        run = lazy.runs.Run.open(path)
        self.set_up(run.experiment)
        return run


def open_best(
    path: Path, dataset: str | None, size: int | None, **sizes: int | None
) -> tuple[lazy.runs.Run, lazy.learner.Learner, lazy.data.Tasks]:
    """Open a run, its best model, and its tasks or the tasks of another dataset.

    `size` is the prepared image size of `dataset`; `sizes` are options such as `shot`.
    """
    from alfa.report import load

    run = Computing().open_run(path)
    if size is None and dataset == run.experiment.tasks.options.get("dataset"):
        dataset = None
    changes = task_changes(run, dataset=dataset, size=size, settings=None, **sizes)
    return run, *load.load_best(run, changes)


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
    others = [names for own, names in _OF_SPLIT.items() if own != split]
    ignored = (*_IRRELEVANT, *itertools.chain(*others))
    experiments = [run.with_overrides(own) for run, own in zip(runs, changes, strict=True)]
    first = experiments[0].tasks.model_dump()
    for run, experiment in zip(runs[1:], experiments[1:], strict=True):
        own = experiment.tasks.model_dump()
        names = [name for name in {**first, **own} if first.get(name) != own.get(name)]
        texts = {name: f"tasks.{name} is {first.get(name)} and {own.get(name)}" for name in names}
        if relevant := [name for name in names if name not in ignored]:
            raise ConfigError(
                f"{runs[0].path} and {run.path} have different tasks "
                f"({', '.join(texts[name] for name in relevant)}), but runs can be compared only "
                f"on the same tasks{_fix(relevant)}."
            )
        sizes = [name for name in names if name in _SIZE_OPTIONS]
        # Runs with the same size open the same store.
        if sizes and not _have_same_images(experiments[0], experiment, split):
            dataset = first.get("dataset")
            listed = dataset if isinstance(dataset, str) else ", ".join(dataset or ())
            raise ConfigError(
                f"{runs[0].path} and {run.path} would be tested on different images of {listed} "
                f"({', '.join(texts[name] for name in sizes)}, and the two sizes were prepared "
                "from different images), but runs can be compared only on the same tasks; prepare "
                f"both sizes from the same files{hint}."
            )


def _fix(names: Sequence[str]) -> str:
    if names == ["dataset"]:
        return "; select one dataset with --dataset"
    if set(names) <= {"way", "shot", "num_query"}:
        return f"; set the same value for both with {' and '.join(map(flag, names))}"
    return ""


def _have_same_images(
    first: lazy.config.Experiment, other: lazy.config.Experiment, split: str
) -> bool:
    tasks, others = lazy.build.build_tasks(first), lazy.build.build_tasks(other)
    # Reading the image names can take long, and is needed only if the stores differ.
    if tasks.signature().data == others.signature().data:
        return True
    return tasks.names_digest(split) == others.names_digest(split)  # type: ignore[arg-type]
