"""Options that several commands share, and checks of their values."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from alfa._io import check_writable
from alfa.cli import lazy
from alfa.errors import ConfigError, check_choice

Json = Annotated[bool, Option("--json", help="Print the results as JSON.")]
Device = Annotated[str, Option(help="Device: cpu, cuda, cuda:1, or mps.")]
Threads = Annotated[int | None, Option(min=1, help="CPU threads; defaults to all, or 1 for MLPs.")]
PhotoModel = Annotated[Path, Argument(help="Run folder, or a model of `alfa models`.")]
RunFolder = Annotated[Path, Argument(help="Run folder, or a model that `alfa models` lists.")]
Seed = Annotated[int | None, Option(min=0, help="Random seed; defaults to 0 or the experiment's.")]
RunSeed = Annotated[int | None, Option(min=0, help="Seed of the tasks; defaults to the run's.")]

# Training.
Set = Annotated[list[str] | None, Option("--set", help="Override, e.g. `outer.num_tasks=4`.")]
Backbone = Annotated[str | None, Option(help="Backbone: `conv4`, or pretrained.")]

# Evaluation.
NumTasks = Annotated[int | None, Option(min=1, help="Number of tasks; defaults to the run's.")]
NumSteps = Annotated[int | None, Option(min=0, help="Inner steps; defaults to the run's.")]
Split = Annotated[str, Option(help="Split: train, val, or test.")]
Checkpoint = Annotated[str, Option(help="best, last, or ensemble (averages the best epochs).")]
Dataset = Annotated[str | None, Option(help="Use another dataset; its images are resized.")]
Size = Annotated[int | None, Option(min=1, help="Prepared size of --dataset, if it has several.")]
TaskSet = Annotated[list[str] | None, Option("--set", help="Override, e.g. `tasks.num_support=5`.")]
Way = Annotated[int | None, Option(min=1, help="Number of classes per task.")]
Shot = Annotated[int | None, Option(min=1, help="Number of support images per class.")]
NumQuery = Annotated[int | None, Option(min=1, help="Number of query images per class.")]
BatchNorm = Annotated[str | None, Option(help="transductive or inductive; defaults to the run's.")]

# Adaptation.
Support = Annotated[Path, Option(help="Support set: a folder with a folder of images per class.")]
Head = Annotated[str, Option(help="Last layer: trained, prototype, zero, or auto.")]
OnProblem = Annotated[str, Option(help="For unusable images: stop, or skip them.")]

PLOT_FORMATS = (".png", ".svg", ".pdf")
_CHOICES = {
    "split": ("train", "val", "test"),
    "checkpoint": ("best", "last", "ensemble"),
    "head": ("trained", "prototype", "zero", "auto"),
    "on_problem": ("stop", "skip"),
}


def flag(name: str) -> str:
    """Return the command-line spelling of an option."""
    return f"--{name.replace('_', '-')}"


def check_choices(**options: str) -> None:
    """Raise if an option such as `split` or `checkpoint` has an unknown value."""
    for name, value in options.items():
        check_choice(flag(name), value, _CHOICES[name])


def check_outputs(outputs: Sequence[Path], suffixes: Sequence[str]) -> None:
    """Raise if an output has an unknown format or cannot be written."""
    for path in outputs:
        if path.suffix not in suffixes:
            raise ConfigError(f"--out must end in {', '.join(suffixes)}, got {path}.")
        check_writable(path)


def with_seed(settings: list[str] | None, seed: int | None) -> list[str]:
    """Return the overrides of --set and --seed."""
    return [*(settings or []), *([] if seed is None else [f"seed={seed}"])]


def table_names(argument: str, names: Sequence[str]) -> list[str]:
    """Return the names of tables of the paper, which are not case-sensitive."""
    known = {name.lower(): name for name in lazy.paper.TABLES}
    for name in names:
        check_choice(argument, name.lower(), known)
    return list(dict.fromkeys(known[name.lower()] for name in names))
