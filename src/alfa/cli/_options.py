"""Options that several commands share, and the checks of their values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="CPU threads; by default one for perceptrons.")
]
TheRun = Annotated[Path, typer.Argument(help="A run folder of `alfa train`.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of everything random; default 0.")]

# What to train.
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one setting, such as `outer.num_iterations=100`."),
]
Backbone = Annotated[
    str | None, typer.Option(help="The model, such as `conv4` or `resnet12`; default per dataset.")
]

# What to evaluate.
NumTasks = Annotated[
    int | None, typer.Option(min=1, help="Tasks to average over; by default the run's.")
]
NumSteps = Annotated[
    int | None, typer.Option(min=0, help="Inner steps; by default as in the run's test.")
]
Split = Annotated[str, typer.Option(help="train, val or test.")]
Checkpoint = Annotated[
    str, typer.Option(help="best, last, or ensemble: the mean output of the best epochs' models.")
]
Dataset = Annotated[
    str | None,
    typer.Option(help="Another dataset of images; they are resized for the model."),
]
Size = Annotated[
    int | None, typer.Option(min=1, help="The prepared size of --dataset, if there are several.")
]
TaskSet = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting of the tasks, such as `tasks.num_support=5`."),
]
Way = Annotated[int | None, typer.Option(min=1, help="Classes of a task.")]
Shot = Annotated[int | None, typer.Option(min=1, help="Support images of each class.")]
NumQuery = Annotated[int | None, typer.Option(min=1, help="Query images of each class.")]
BatchNorm = Annotated[
    str | None, typer.Option(help="transductive or inductive; by default as in training.")
]

# What to adapt to.
Support = Annotated[
    Path,
    typer.Option(help="A folder of class folders: a few images of each class to learn from."),
]
Head = Annotated[
    str,
    typer.Option(help="The last layer: trained, or zero or prototype for any number of classes."),
]
OnProblem = Annotated[str, typer.Option(help="stop, or skip the images that cannot be used.")]

PLOT_FORMATS = (".png", ".svg", ".pdf")
_CHOICES = {
    "--split": ("train", "val", "test"),
    "--checkpoint": ("best", "last", "ensemble"),
    "--head": ("trained", "prototype", "zero"),
    "--on-problem": ("stop", "skip"),
}


def check_choices(**options: str) -> None:
    """Raise if an option such as `split` or `checkpoint` has an unknown value."""
    from alfa.errors import check_choice

    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        check_choice(option, value, _CHOICES[option])


def check_size(size: int | None, dataset: object) -> None:
    """Raise if --size is given without --dataset."""
    from alfa.errors import ConfigError

    if size is not None and not dataset:
        raise ConfigError(
            f"--size is {size}, but --size belongs to --dataset; give both, or neither."
        )


def check_outputs(outputs: list[Path], suffixes: tuple[str, ...]) -> None:
    """Raise if an output has an unknown format, or cannot be written."""
    from alfa._io import check_writable
    from alfa.errors import ConfigError

    for path in outputs:
        if path.suffix not in suffixes:
            raise ConfigError(f"--out is {path}, but must end in {', '.join(suffixes)}.")
        check_writable(path)


def with_seed(settings: list[str] | None, seed: int | None) -> list[str]:
    """The overrides of --set and --seed."""
    return [*(settings or []), *([] if seed is None else [f"seed={seed}"])]
