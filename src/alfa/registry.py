"""Registries of rules, inits, models, optimizers, and datasets by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from alfa.errors import ConfigError, did_you_mean

T = TypeVar("T")
C = TypeVar("C", bound=type)

# The attribute of a registered part that holds its constructor's keyword arguments.
_OPTIONS = "_constructor_options"


class Registry(Generic[T]):
    """The registered classes of one kind; users can add their own.

    Args:
        kind: the name of the kind, for error messages.
        context: keyword-only arguments that the builder supplies and users cannot configure.
    """

    def __init__(self, kind: str, *, context: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.context = context
        self._parts: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[C], C]:
        """Register the decorated class as `name`.

        Its keyword-only arguments become the options that a configuration may set.

        Examples:
            >>> from alfa import register_rule
            >>> from alfa.rules import RULES, SGD
            >>> @register_rule("halving")
            ... class Halving(SGD):
            ...     def rates(self, step, params, grads, state=()):
            ...         rates = super().rates(step, params, grads, state)
            ...         return type(rates)(rates.alpha * 0.5**step, rates.beta)
            >>> "halving" in RULES
            True
        """

        def decorate(part: C) -> C:
            known = self._parts.get(name, part)
            # A reloaded module may register its classes again.
            if (known.__module__, known.__qualname__) != (part.__module__, part.__qualname__):
                raise ConfigError(
                    f"the {self.kind} {name!r} is already taken by {known.__qualname__}; "
                    f"register {part.__qualname__} under another name."
                )
            self._parts[name] = part
            _record_options(part)
            return part

        return decorate

    def get(self, name: str) -> type[T]:
        if name not in self._parts:
            raise ConfigError(
                f"unknown {self.kind} {name!r}; known: {', '.join(self)}.{did_you_mean(name, self)}"
            )
        return self._parts[name]

    def name_of(self, part: T) -> str:
        """Return the registered name of an object's class, or else the class's own name."""
        return self._registered_name(part) or type(part).__name__

    def describe(self, part: T) -> dict[str, Any]:
        """Return an object's registered name and constructor options, or raise ConfigError."""
        name = self._registered_name(part)
        if name is None:
            raise ConfigError(
                f"the {self.kind} {type(part).__name__} is not registered, so a run folder cannot "
                f"refer to it; decorate the class with @register_{self.kind}('my-{self.kind}')."
            )
        given = getattr(part, _OPTIONS, {})
        return {"name": name, **{k: v for k, v in given.items() if k not in self.context}}

    def _registered_name(self, part: T) -> str | None:
        return next((name for name, known in self._parts.items() if known is type(part)), None)

    def options(self, name: str) -> dict[str, inspect.Parameter]:
        """Return a part's keyword-only arguments, including those that the builder supplies."""
        try:
            signature = inspect.signature(self.get(name), eval_str=True)
        except NameError as error:
            raise ConfigError(
                f"the arguments of the {self.kind} {name!r} have annotations that cannot be "
                f"resolved: {error}; import the name outside of TYPE_CHECKING."
            ) from None
        parameters = signature.parameters.items()
        return {key: p for key, p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}

    def wraps(self, name: str, argument: str) -> bool:
        """Return whether a part wraps another: its first argument is called `argument`."""
        return next(iter(inspect.signature(self.get(name)).parameters), None) == argument

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._parts))

    def __contains__(self, name: object) -> bool:
        return name in self._parts


def _record_options(part: type) -> None:
    """Make objects record their constructor's keyword arguments, for `Registry.describe`."""
    construct = part.__init__  # type: ignore[misc]

    @functools.wraps(construct)
    def recording(self: Any, *args: Any, **options: Any) -> None:
        construct(self, *args, **options)
        # The most derived constructor returns last and overwrites the record of its bases.
        self.__dict__[_OPTIONS] = options

    part.__init__ = recording  # type: ignore[misc]
