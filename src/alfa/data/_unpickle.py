"""Load pickles of plain data only: arrays, lists, dictionaries, strings, and numbers.

A pickle is a program that calls the functions it names. This unpickler replaces the few functions
that plain data needs with its own ones, which check their arguments. It never calls NumPy's
functions, because a forged type can make them read foreign memory.
"""

import io
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from alfa.errors import DataError

_NUMBER_OR_TEXT = re.compile(r"b1|[iu][1248]|f[248]|[SU][0-9]{1,6}")
_SCALARS = (str, bytes, int, float, bool, type(None))


def load_plain(source: Path | bytes) -> Any:
    """Load a pickle of plain data; raise a DataError if it contains anything else.

    Strings that Python 2 wrote are returned as bytes; see `get_entry` and `as_text`.
    """
    name = "the pickle" if isinstance(source, bytes) else str(source)
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        try:
            return _resolved(_PlainUnpickler(file, encoding="bytes").load(), {})
        except _ForbiddenError as error:
            raise DataError(
                f"{name} is refused: it contains {error}, but only arrays, lists, dictionaries, "
                "strings, and numbers are loaded from a pickle; get the dataset from its "
                "publisher, or in another layout."
            ) from None
        # A damaged pickle can fail with almost any error.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise DataError(
                f"{name} is damaged or not a pickle ({reason}); download it again."
            ) from None


def get_entry(table: object, name: str, *, where: Path) -> Any:
    """Return an entry of a dictionary whose keys may be strings or, from Python 2, bytes."""
    content = table if isinstance(table, dict) else {}
    for key in (name, name.encode()):
        if key in content:
            return content[key]
    raise DataError(
        f"{where} has no entry {name!r}, so it is not the published file; download it again."
    )


def get_texts(table: object, name: str, *, where: Path) -> list[str]:
    """Return an entry that is a list of names."""
    values = get_entry(table, name, where=where)
    if not isinstance(values, list | tuple) or not all(isinstance(x, str | bytes) for x in values):
        raise DataError(f"{where} has no list of names in the entry {name!r}; download it again.")
    return [as_text(value) for value in values]


def as_text(value: object) -> str:
    """Convert bytes from Python 2, or any other value, to a string."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class _ForbiddenError(pickle.UnpicklingError):
    """A part of a pickle that is not plain data."""


class _Allowed:
    """A function that a pickle may call, but neither modify nor return."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: object) -> None:
        raise _ForbiddenError("a change of a function")


class _DType:
    """The pickled type of an array: a code such as ``u1``, and a byte order."""

    def __init__(self, code: object, align: object = False, copy: object = False) -> None:
        self._code, self._order = as_text(code), "="
        if not _NUMBER_OR_TEXT.fullmatch(self._code):
            raise _ForbiddenError(f"an array of the type {self._code!r}")

    def __setstate__(self, state: Any) -> None:
        _, order, *parts = state[:5]
        self._order = as_text(order)
        if self._order not in ("<", ">", "|", "=") or any(part is not None for part in parts):
            raise _ForbiddenError("an array of a compound type")

    def real(self) -> np.dtype[Any]:
        return np.dtype(self._order.replace("|", "=") + self._code)


class _Array:
    """A pickled array, which receives its values in `__setstate__`."""

    values: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        shape, dtype, is_fortran, data = state[-4:]
        self.values = _array_of(data, dtype, shape, "F" if is_fortran else "C")


def _array_of(data: object, dtype: object, shape: Any, order: object) -> np.ndarray:
    if not isinstance(dtype, _DType) or not isinstance(data, bytes | bytearray | str):
        raise _ForbiddenError("an array of objects")
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
        raise _ForbiddenError(f"an array of the shape {shape!r}")
    raw = data.encode("latin1") if isinstance(data, str) else data
    if not raw:
        # This raises unless the array is empty.
        return np.empty(0, dtype.real()).reshape(shape)
    memory_order: Any = as_text(order)
    return np.frombuffer(raw, dtype.real()).reshape(shape, order=memory_order)


def _reconstruct(kind: object, shape: object, code: object) -> _Array:
    if kind is not _NDARRAY or shape != (0,):
        raise _ForbiddenError("an array of an unusual kind")
    return _Array()


def _encode(content: object, codec: object = "latin1") -> bytes:
    # Python 3 writes bytes like this in older protocols; other codecs could decompress bombs.
    if not isinstance(content, str) or as_text(codec) not in ("latin1", "latin-1"):
        raise _ForbiddenError(f"a call of _codecs.encode with {as_text(codec)!r}")
    return content.encode("latin1")


def _not_called(*arguments: object) -> None:
    raise _ForbiddenError("a call of numpy.ndarray")


_NDARRAY = _Allowed(_not_called)
_GLOBALS: dict[tuple[str, str], _Allowed] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Allowed(_DType),
    ("_codecs", "encode"): _Allowed(_encode),
    ("__builtin__", "bytes"): _Allowed(lambda: b""),
    ("builtins", "bytes"): _Allowed(lambda: b""),
}
# NumPy 2 writes the new name of its core.
for _core in ("numpy.core", "numpy._core"):
    _GLOBALS[f"{_core}.multiarray", "_reconstruct"] = _Allowed(_reconstruct)
    _GLOBALS[f"{_core}.multiarray", "scalar"] = _Allowed(
        lambda dtype, data: _array_of(data, dtype, (), "C").item()
    )
    _GLOBALS[f"{_core}.numeric", "_frombuffer"] = _Allowed(_array_of)


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _GLOBALS[module_name, global_name]
        except KeyError:
            raise _ForbiddenError(f"{module_name}.{global_name}") from None

    def persistent_load(self, pid: object) -> Any:
        raise _ForbiddenError("a reference to an external object")


def _resolved(value: Any, done: dict[int, tuple[Any, Any]]) -> Any:
    """Return the same data with real arrays, after checking everything in it.

    `done` maps ids to pairs of original and resolved value; the original keeps its id in use.
    """
    if type(value) in _SCALARS:
        return value
    if id(value) in done:
        return done[id(value)][1]
    if isinstance(value, _Array):
        value = value.values
    if type(value) is list:
        done[id(value)] = value, value
        value[:] = [_resolved(item, done) for item in value]
        return value
    if type(value) is dict:
        done[id(value)] = value, value
        for key, item in value.items():
            if type(key) not in _SCALARS:
                raise _ForbiddenError(f"a key of the type {type(key).__name__}")
            value[key] = _resolved(item, done)
        return value
    if type(value) is tuple:
        new = tuple(_resolved(item, done) for item in value)
        done[id(value)] = value, new
        return new
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return value
    raise _ForbiddenError(f"an object of the type {type(value).__name__}")
