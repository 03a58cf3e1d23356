"""The devices of this machine."""

from __future__ import annotations

from alfa.errors import ConfigError


def check_device(device: object, *, name: str) -> None:
    """Raise a ConfigError unless torch can use a device; `name` is the option in the message."""
    import torch

    try:
        found = torch.device(device)  # type: ignore[call-overload]
        torch.empty(1, device=found)
        usable = found.type in ("cpu", "cuda", "mps")
    except (RuntimeError, AssertionError, NotImplementedError, TypeError, ImportError):
        usable = False
    if not usable:
        known = ["cpu"]
        known += ["cuda"] if torch.cuda.is_available() else []
        known += ["mps"] if torch.backends.mps.is_available() else []
        raise ConfigError(
            f"{name} is {device!r}, which this machine does not have; it has {', '.join(known)}."
        )
