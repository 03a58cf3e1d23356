"""A local HTTP API, and a web page on top of it, that teach a classifier a few photos per class."""

from alfa.serve._limits import Limits
from alfa.serve._start import check_installed, create_app, serving

__all__ = ["Limits", "check_installed", "create_app", "serving"]
