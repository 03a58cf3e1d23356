"""Exceptions and warnings that users see, and hints for misspelled names."""

import difflib
from collections.abc import Iterable


class AlfaError(Exception):
    """An error that the user can fix; its text is one clear sentence.

    Examples:
        >>> from alfa import AlfaError, SGD
        >>> from alfa.rules import RULES
        >>> try:
        ...     RULES.get("sdg")
        ... except AlfaError as error:
        ...     print(str(error).split(".")[-1].strip())
        Did you mean 'sgd'?
    """


class ConfigError(AlfaError, ValueError):
    """An argument or a configuration is invalid."""


class DataError(AlfaError):
    """A dataset is missing, incomplete, or damaged."""


class CheckpointError(AlfaError):
    """A run folder or checkpoint cannot be used."""


class DamagedError(CheckpointError):
    """A file's content does not match its checksum or format."""


class BusyError(CheckpointError):
    """Another process is writing to a run folder."""


class DivergedError(AlfaError, ArithmeticError):
    """A loss or gradient is no longer finite."""


class LostError(AlfaError):
    """Another process of a distributed run has exited."""


class Stopped(KeyboardInterrupt):
    """The user stopped a command, which has saved all its progress."""


class AlfaWarning(UserWarning):
    """Alfa behaves differently from what the user may expect."""


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """Return the hint `` Did you mean 'x'?`` with its leading space, or an empty string."""
    close = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def check_choice(argument: str, value: object, allowed: Iterable[str]) -> None:
    """Raise ConfigError, with a hint, unless `value` is one of `allowed`."""
    names = list(allowed)
    if value not in names:
        raise ConfigError(
            f"`{argument}` is {value!r}, which is not one of "
            f"{', '.join(repr(name) for name in names)}.{did_you_mean(str(value), names)}"
        )
