"""Messages of Pillow and libtiff on broken files, suppressed without affecting other threads.

``warnings.catch_warnings`` swaps state of the whole process and is not safe in threads. Instead one filter is added
that matches only in a thread that is decoding at that moment; everybody else's warnings are as before.
Pillow also logs; a null handler keeps its records from the last-resort printer and still lets a program that set up
logging see them. libtiff prints from C: its two handlers, one pair for the whole process, are taken out.
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
    pattern = "(?!)"  # for programs that copy filters as text, such as scikit-learn: one that matches nothing

    def match(self, _message: str) -> bool:
        """Replaces the compiled pattern of a filter: true in a decoding thread."""
        return self.depth > 0


_decoding = _DecodingThread()
_changing = threading.Lock()
_FILTER = ("ignore", _decoding, Warning, None, 0)

logging.getLogger("PIL").addHandler(logging.NullHandler())


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore every warning raised by this thread inside the block."""
    _put_first()
    _decoding.depth += 1
    try:
        yield
    finally:
        _decoding.depth -= 1


def _put_first() -> None:
    """Move the filter to the front, since other code resets filters or inserts its own."""
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

    What is wrong with a file comes back from Pillow as an exception all the same. A Pillow whose libtiff shows no
    such functions goes on printing.
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
