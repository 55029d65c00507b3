"""Messages of Pillow and libtiff on broken files, suppressed without affecting other threads.

``warnings.catch_warnings`` replaces state of the whole process and is not thread-safe. Instead one filter is added that
only matches in threads that are decoding. For Pillow's log records, a null handler replaces the last-resort handler,
and programs that configure logging still receive them. libtiff prints from C: its two handlers, global to the process,
are removed.
"""

import ctypes
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from PIL import Image


class _DecodingThread(threading.local):
    depth = 0
    pattern = "(?!)"  # a pattern that matches nothing, for programs that copy filters as text, such as scikit-learn

    def match(self, _message: str) -> bool:
        """Return whether this thread is decoding; replaces the compiled pattern of a filter."""
        return self.depth > 0


_decoding = _DecodingThread()
_changing = threading.Lock()
_FILTER = ("ignore", _decoding, Warning, None, 0)

logging.getLogger("PIL").addHandler(logging.NullHandler())


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore every warning raised by this thread inside the block."""
    _move_filter_first()
    _decoding.depth += 1
    try:
        yield
    finally:
        _decoding.depth -= 1


def _move_filter_first() -> None:
    """Move the filter to the front, since other code may reset filters or insert its own."""
    filters = cast("list[Any]", warnings.filters)
    if filters and filters[0] is _FILTER:
        return
    with _changing:
        filters.insert(0, _FILTER)
        for at in range(len(filters) - 1, 0, -1):
            if filters[at] is _FILTER:
                del filters[at]


@cache
def silence_libtiff() -> bool:
    """Remove libtiff's handlers, which print to stderr; return whether that was possible.

    Errors are still raised by Pillow. If Pillow's libtiff does not export the functions, it keeps printing.
    """
    try:
        library = ctypes.CDLL(Image.core.__file__)  # its symbols, and its libraries' symbols
        for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
            install = getattr(library, name)
            install.argtypes, install.restype = [ctypes.c_void_p], ctypes.c_void_p
            install(None)
    except (AttributeError, OSError):
        return False
    return True
