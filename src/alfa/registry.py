"""Registries: how a configuration finds a rule, init, model, optimizer, or dataset by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from alfa.errors import ConfigError, did_you_mean

T = TypeVar("T")
C = TypeVar("C", bound=type)


def _origin(part: type) -> tuple[str, str]:
    return part.__module__, part.__qualname__


# The attribute of a registered part that holds the options it was constructed with.
_OPTIONS = "_constructor_options"


class Registry(Generic[T]):
    """The registered classes of one kind; users can add their own.

    Args:
        kind: the name of the kind, for error messages.
        context: keyword-only arguments that the builder fills in, so that they are not options.
    """

    def __init__(self, kind: str, *, context: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.context = context
        self._parts: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[C], C]:
        """A class decorator that makes the class known as `name`.

        Its keyword-only arguments become the options that a configuration may set.

        Example:
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
            known = self._parts.get(name)
            # A module that is reloaded registers itself again; two parts of one name clash.
            if known is not None and _origin(known) != _origin(part):
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
        """What an object's class is registered as, or else its own name."""
        names = [name for name, known in self._parts.items() if known is type(part)]
        return names[0] if names else type(part).__name__

    def describe(self, part: T) -> dict[str, Any]:
        """The name of an object's class and the options the object was constructed with.

        Raises:
            ConfigError: the class is not registered.
        """
        name = next((name for name, known in self._parts.items() if known is type(part)), None)
        if name is None:
            kind, own = self.kind, type(part).__name__
            raise ConfigError(
                f"the {kind} {own} is not registered, so a run folder cannot refer to it; decorate "
                f"the class with @register_{kind}('my-{kind}')."
            )
        given = getattr(part, _OPTIONS, {})
        options = {key: value for key, value in given.items() if key not in self.context}
        return {"name": name, **options}

    def options(self, name: str) -> dict[str, inspect.Parameter]:
        """The keyword-only arguments of a part, including those that the builder fills in.

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


def _record_options(part: type) -> None:
    """Let objects remember the keyword arguments of their constructor, for `Registry.describe`."""
    construct = part.__init__  # type: ignore[misc]

    @functools.wraps(construct)
    def recording(self: Any, *args: Any, **options: Any) -> None:
        construct(self, *args, **options)
        # The constructor of the most derived class returns last and overwrites its bases' record.
        self.__dict__[_OPTIONS] = options

    part.__init__ = recording  # type: ignore[misc]
