"""First steps of every command that computes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from alfa.cli import lazy
from alfa.cli._tasks import task_changes


@dataclass(frozen=True)
class Computing:
    """The options of a command that select the device and the output format."""

    device: str = "cpu"
    threads: int | None = None
    as_json: bool = False

    def set_up(self, experiment: lazy.config.Experiment, *, share: int = 1) -> None:
        """Prepare the process; `share` is the number of processes that share the machine."""
        set_up(experiment, device=self.device, threads=self.threads, share=share)

    def open_run(self, path: Path) -> lazy.runs.Run:
        """Open a run, and prepare the process for it."""
        run = lazy.runs.Run.open(path)
        self.set_up(run.experiment)
        return run


def set_up(
    experiment: lazy.config.Experiment, *, device: str, threads: int | None, share: int = 1
) -> None:
    """Check the device, tune the process, and set the number of CPU threads."""
    check_device(device)
    lazy._runtime.tune()
    # The operations of a perceptron take less time than distributing them over threads.
    lazy._runtime.set_threads(threads, small=experiment.model.name == "mlp", share=share)


def check_device(device: str) -> None:
    """Raise if this machine does not have the device."""
    lazy._runtime.check_device(device, name="--device")


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
