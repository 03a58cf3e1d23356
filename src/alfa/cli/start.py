"""What every command that computes does first."""

from __future__ import annotations

import torch

from alfa.config import Experiment
from alfa.errors import ConfigError
from alfa.ops import set_threads


def set_up(experiment: Experiment, *, device: str, threads: int | None) -> None:
    """Check the device and choose the number of CPU threads.

    Raises:
        ConfigError: there is no such device on this machine.
    """
    check_device(device)
    # A perceptron's operations are smaller than the cost of sharing them.
    set_threads(threads, small=experiment.model.name == "mlp")


def check_device(device: str) -> None:
    """Make sure that there is something to compute on.

    Raises:
        ConfigError: there is no such device on this machine.
    """
    try:
        torch.empty(1, device=device)
        usable = torch.device(device).type in ("cpu", "cuda", "mps")
    except (RuntimeError, AssertionError, NotImplementedError):
        usable = False
    if not usable:
        known = ["cpu"]
        known += ["cuda"] if torch.cuda.is_available() else []
        known += ["mps"] if torch.backends.mps.is_available() else []
        raise ConfigError(
            f"--device is {device!r}, which this machine does not have; it has {', '.join(known)}."
        )
