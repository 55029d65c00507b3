"""How the images of rows become files of an export: copies, or links to local files."""

from collections.abc import Callable

ImageReader = Callable[[str], bytes]  # key -> the encoded image; raises ReadError
COPY, HARD, SYMBOLIC = "copy", "hard", "symbolic"
LINKS = (COPY, HARD, SYMBOLIC)
