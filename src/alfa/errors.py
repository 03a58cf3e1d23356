"""Every error a user can cause, and the wording they share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AlfaError(Exception):
    """Something the user can put right; its text is one clear sentence.

    Example:
        >>> from alfa import AlfaError, SGD
        >>> from alfa.rules import RULES
        >>> try:
        ...     RULES.get("sdg")
        ... except AlfaError as error:
        ...     print(str(error).split(".")[-1].strip())
        Did you mean 'sgd'?
    """


class ConfigError(AlfaError, ValueError):
    """An option or a configuration is wrong."""


class DataError(AlfaError):
    """A dataset is missing, incomplete or damaged."""


class CheckpointError(AlfaError):
    """A run folder or checkpoint cannot be used."""


class DamagedError(CheckpointError):
    """The content of a file is not what was written into it."""


class BusyError(CheckpointError):
    """Another process is writing into a run folder."""


class DivergedError(AlfaError, ArithmeticError):
    """A loss or a gradient is no longer finite."""


class LostError(AlfaError):
    """Another process of the same run is gone."""


class Stopped(KeyboardInterrupt):
    """The user has asked to stop, and everything that was done is kept."""


class AlfaWarning(UserWarning):
    """Something that is done differently from what the user may expect."""


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """The hint `` Did you mean 'x'?`` (with its leading space), or nothing."""
    close = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def check_choice(argument: str, value: object, allowed: Iterable[str]) -> None:
    """Raise unless `value` is one of `allowed`.

    Raises:
        ConfigError: names the argument, the value, what is allowed and the likeliest fix.
    """
    names = list(allowed)
    if value not in names:
        raise ConfigError(
            f"`{argument}` is {value!r}, which is not one of "
            f"{', '.join(repr(name) for name in names)}.{did_you_mean(str(value), names)}"
        )
