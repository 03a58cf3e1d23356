"""Numbers too small to matter, which processors take long for.

Below 1.2e-38 a number of 32 bits has fewer and fewer digits, and many processors compute with such
*denormal* numbers in a slow way of their own. Where a task is learned well, or a softmax is sure of
itself, gradients fade into them layer by layer, and a convolution takes up to seventeen times as
long as otherwise. Taken for 0 they cost nothing, and change no figure.
"""

from __future__ import annotations

import functools
import os

SWITCH = "ALFA_FLUSH_DENORMALS"


@functools.cache
def flush_denormals() -> bool:
    """Let the process take denormal numbers for 0, from now on.

    Threads do as the one that has started them, so it must come before torch starts its own: those
    that are there already go on as they were. Does nothing where the processor cannot, or where the
    environment variable ``ALFA_FLUSH_DENORMALS`` is 0.

    Returns:
        Whether they are taken for 0 by this thread, and by those that it starts.
    """
    if os.environ.get(SWITCH) == "0":
        return False
    import torch

    return torch.set_flush_denormal(True)
