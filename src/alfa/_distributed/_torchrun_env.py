"""How this process was started: alone, or by `torchrun` or ``alfa train --processes``."""

from __future__ import annotations

import os

import torch

from alfa.errors import ConfigError

# What `torchrun` and its like tell every process.
_TOLD = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# What `torchrun` calls a launch that was not given a name.
_NO_NAME = "none"


def is_launched() -> bool:
    """Whether `torchrun` or ``alfa train --processes`` has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_one_of_many() -> bool:
    """Whether this process was started as one of several that compute a run together."""
    return all(name in os.environ for name in _TOLD) and os.environ["WORLD_SIZE"] != "1"


def is_restarted() -> bool:
    """Whether `torchrun` has started this process in the place of another one."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0


def launch_name() -> str | None:
    """What processes that were launched together, and all that replace them, have in common.

    None where the launch has no name of its own, or where there is none.
    """
    name = os.environ.get("TORCHELASTIC_RUN_ID", _NO_NAME)
    return None if name == _NO_NAME else name


def check_cards(device: str, count: int) -> None:
    """Make sure that some processes of this machine can all have a graphics card, if they need one.

    Raises:
        ConfigError: there are too few, or they would all take the same.
    """
    if device.startswith("cuda:") and count > 1:
        raise ConfigError(
            f"--device is {device!r}, but there are {count} processes on this machine; say cuda, "
            "and each takes one of its own, or hide the others with CUDA_VISIBLE_DEVICES."
        )
    if device == "cuda" and torch.cuda.device_count() < count:
        raise ConfigError(
            f"--device is 'cuda', but this machine has {torch.cuda.device_count()} graphics cards "
            f"for {count} processes; start no more than there are, or say cpu."
        )
