"""How images are placed in an export: copied, or linked to local files."""

from collections.abc import Callable

ImageReader = Callable[[str], bytes]  # key -> the encoded image; raises ReadError
COPY, HARD, SYMBOLIC = "copy", "hard", "symbolic"
LINKS = (COPY, HARD, SYMBOLIC)
