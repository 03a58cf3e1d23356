"""Parts by name: how a configuration finds a rule, an init, a model or a data source."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from alfa.errors import ConfigError, did_you_mean

T = TypeVar("T")
C = TypeVar("C", bound=type)


def _origin(part: type) -> tuple[str, str]:
    return part.__module__, part.__qualname__


class Registry(Generic[T]):
    """The known parts of one kind, open to a user's own."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[C], C]:
        """A class decorator that makes the class known as `name`.

        Its keyword-only arguments become the options that a configuration may set.

        Example:
            >>> from alfa import register_rule
            >>> from alfa.rules import RULES, SGD
            >>> @register_rule("halving")
            ... class Halving(SGD):
            ...     def rates(self, step, params, grads, memory=()):
            ...         rates = super().rates(step, params, grads, memory)
            ...         return type(rates)(rates.alpha * 0.5**step, rates.beta)
            >>> "halving" in RULES
            True
        """

        def decorate(part: C) -> C:
            known = self._parts.get(name)
            # A module that is reloaded registers itself again; two parts of one name clash.
            if known is not None and _origin(known) != _origin(part):
                raise ConfigError(
                    f"the {self.kind} {name!r} is already taken by {known.__qualname__}; "
                    f"register {part.__qualname__} under another name."
                )
            self._parts[name] = part
            return part

        return decorate

    def get(self, name: str) -> type[T]:
        if name not in self._parts:
            raise ConfigError(
                f"unknown {self.kind} {name!r}; known: {', '.join(self)}.{did_you_mean(name, self)}"
            )
        return self._parts[name]

    def name_of(self, part: T) -> str:
        """What an object's class is registered as, or else its own name."""
        names = [name for name, known in self._parts.items() if known is type(part)]
        return names[0] if names else type(part).__name__

    def options(self, name: str) -> dict[str, inspect.Parameter]:
        """The keyword-only arguments of a part: what a configuration may set.

        Raises:
            ConfigError: there is no such part, or its annotations name what is not there.
        """
        try:
            signature = inspect.signature(self.get(name), eval_str=True)
        except NameError as error:
            raise ConfigError(
                f"the arguments of the {self.kind} {name!r} have annotations that cannot be read: "
                f"{error}; import what they name, and not under TYPE_CHECKING alone."
            ) from None
        return {
            key: parameter
            for key, parameter in signature.parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }

    def wraps(self, name: str, argument: str) -> bool:
        """Whether a part's first argument is called `argument`: it wraps another part."""
        return next(iter(inspect.signature(self.get(name)).parameters), None) == argument

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._parts))

    def __contains__(self, name: object) -> bool:
        return name in self._parts
