"""Adapted models as files that run without torch, and without alfa."""

from alfa.export._onnx import Exported, check_installed, export_onnx

__all__ = ["Exported", "check_installed", "export_onnx"]
