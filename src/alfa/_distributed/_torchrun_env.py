"""The environment variables by which `torchrun` and ``alfa train --processes`` start processes."""

from __future__ import annotations

import os

import torch

from alfa.errors import ConfigError

# The variables that every launcher of several processes sets.
_REQUIRED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# The run id that `torchrun` uses if the user gives none.
_NO_NAME = "none"


def is_launched() -> bool:
    """Return True if `torchrun` or ``alfa train --processes`` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_one_of_many() -> bool:
    """Return True if this process is one of several that train a run together."""
    return all(name in os.environ for name in _REQUIRED) and os.environ["WORLD_SIZE"] != "1"


def is_restarted() -> bool:
    """Return True if `torchrun` started this process to replace one that failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0


def launch_name() -> str | None:
    """Return the name that all processes of a launch and their replacements share, if any."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", _NO_NAME)
    return None if name == _NO_NAME else name


def check_cards(device: str, count: int) -> None:
    """Raise a ConfigError unless each of `count` processes on this machine can use its own GPU."""
    if device.startswith("cuda:") and count > 1:
        raise ConfigError(
            f"--device is {device!r}, but {count} processes on this machine cannot share one GPU; "
            "use cuda, which gives each process its own GPU, and hide the others with "
            "CUDA_VISIBLE_DEVICES."
        )
    if device == "cuda" and torch.cuda.device_count() < count:
        raise ConfigError(
            f"--device is 'cuda', but this machine has {torch.cuda.device_count()} GPUs for "
            f"{count} processes; start at most one process per GPU, or use cpu."
        )
