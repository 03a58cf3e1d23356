"""A local web page on which a user adapts a trained run to a few images."""

from alfa.serve._model import Model
from alfa.serve._server import Server, check_gradio, serving

__all__ = ["Model", "Server", "check_gradio", "serving"]
