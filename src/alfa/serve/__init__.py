"""A page on this computer where somebody teaches a trained run with a few pictures."""

from alfa.serve._model import Learnt, Model, Seen
from alfa.serve._people import Counter, File, People
from alfa.serve._server import Page, serving
from alfa.serve._session import Session

__all__ = ["Counter", "File", "Learnt", "Model", "Page", "People", "Seen", "Session", "serving"]
