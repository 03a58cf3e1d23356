"""Imports and images that the processes of `test_lifecycle` inherit instead of repeating."""

import alfa.build
import alfa.cli.main
import alfa.cli.train
import alfa.data
import alfa.ops._mlp_kernels
import alfa.ops._norm_kernels
import alfa.ops._update_kernels
import alfa.ops._winograd_kernels
import alfa.runs
import alfa.training  # noqa: F401
from alfa.data import open_images

open_images("strokes", size=16)
