"""Memory of large tensors that stays with the process.

glibc gives every large block back to the system when it is freed, and the system hands it out
again page by page, zeroed. With tensors of tens of megabytes that come and go many times a second
this costs as much as the arithmetic. Kept blocks cost no time. They cost some memory, as holes
between them are not always reused.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform

SWITCH = "ALFA_KEEP_MEMORY"

# From malloc.h; glibc's own documentation gives them their meaning.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


@functools.cache
def keep_memory() -> bool:
    """Let the process keep the memory of large tensors, from now on.

    Does nothing where the C library is not glibc, or where the environment variable
    ``ALFA_KEEP_MEMORY`` is 0.

    Returns:
        Whether memory is kept.
    """
    if os.environ.get(SWITCH) == "0" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # A threshold of -1 is none: nothing is given back, however much lies free.
    settings = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1, _M_TOP_PAD: 64 << 20}
    return all(mallopt(key, value) == 1 for key, value in settings.items())
