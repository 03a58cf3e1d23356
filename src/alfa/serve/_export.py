"""An adapted model as a file, where there is a way."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np

from alfa.errors import ConfigError
from alfa.serve._model import Learnt, alone

Export = Callable[[Learnt, Sequence[str]], bytes]
"""Makes a file of what was learnt, given the names of the classes."""


def exporter() -> Export | None:
    """What makes an ONNX file; None where the extra `export` is not installed."""
    try:
        from alfa.export import check_installed

        check_installed()
    except (ImportError, ConfigError):
        return None
    return _as_onnx


def _as_onnx(learnt: Learnt, names: Sequence[str]) -> bytes:
    from alfa.export._onnx import make_onnx

    # The page knows classes by numbers; who uses the file knows them by their names.
    named = copy.copy(learnt.classifier)
    named.classes_ = np.array(names)
    # In memory alone, and checked on what it was taught with.
    return alone(lambda: make_onnx(named, check_on=learnt.images)).content
