"""What every command that computes does first."""

from __future__ import annotations

from alfa import ops
from alfa.config import Experiment


def set_up(experiment: Experiment, *, device: str, threads: int | None, share: int = 1) -> None:
    """Check the device and choose the number of CPU threads.

    Args:
        experiment: that is run.
        device: to run it on.
        threads: what the user asked for.
        share: processes that share the machine.

    Raises:
        ConfigError: there is no such device on this machine.
    """
    check_device(device)
    # A perceptron's operations are smaller than the cost of sharing them.
    ops.set_threads(threads, small=experiment.model.name == "mlp", share=share)


def check_device(device: str) -> None:
    """Make sure that there is something to compute on.

    Raises:
        ConfigError: there is no such device on this machine.
    """
    ops.check_device(device, name="--device")
