"""Adapted models as files that run without torch, and without alfa."""

from alfa.export._onnx import Exported, check_installed, export_onnx, make_onnx

__all__ = ["make_onnx", "Exported", "check_installed", "export_onnx"]
