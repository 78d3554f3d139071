"""Keep freed memory for the next tensors instead of returning it to the system.

A training step allocates its activations and gradients, and frees them at its end. glibc returns large pieces, and the free end of
the heap, to the system at once. In the next step, the system hands out the same pages again one by one, filled with zeros. Larger
thresholds keep the memory in the process, which saves most of the page faults of large networks. Results stay the same.
"""

import ctypes
import os
from contextlib import suppress
from functools import cache

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""Names of glibc's settings in ``malloc.h``."""
LARGEST = 2**25
"""Bytes from which a piece of memory is returned to the system as soon as it is freed; glibc allows no more."""
KEPT = 2**29
"""Bytes of freed memory at the end of a heap that are kept."""
OF_USERS = ("MALLOC_", "GLIBC_TUNABLES")
"""Beginnings of the names of environment variables by which users choose these settings themselves."""


@cache
def keep_freed_memory() -> bool:
    """Let this process keep freed memory, up to :data:`KEPT` at the end of each heap. Does something at the first call only.

    Returns:
        whether the C library is glibc and follows; False also if an environment variable has settings of the user.
    """
    if any(name.startswith(OF_USERS) for name in os.environ):
        return False
    set_option = getattr(_glibc(), "mallopt", None)
    if set_option is None:
        return False
    # without the padding, heaps of threads are returned as a whole
    chosen = {_MMAP_THRESHOLD: LARGEST, _TRIM_THRESHOLD: KEPT, _TOP_PAD: KEPT // 4}
    followed = [bool(set_option(option, value)) for option, value in chosen.items()]
    return all(followed)


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is glibc."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - only glibc has this function
        return library
    return None
