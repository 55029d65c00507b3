"""Parts of an HTML page: escaped user text, embedded images, digests of allowed scripts."""

import base64
import hashlib
import html
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from curate.sheets.captions import plain_line

JPEG_QUALITY = 82


def escaped(text: str, most: int = 200) -> str:
    """Return user text escaped for HTML: one line, bounded, with isolated writing direction.

    >>> escaped('<img src="x">')
    '&lt;img src=&quot;x&quot;&gt;'
    """
    return html.escape(plain_line(text, most), quote=True)


def isolated(text: str, most: int = 200) -> str:
    """Return user text as an element whose writing direction does not affect its surroundings."""
    return f"<bdi>{escaped(text, most)}</bdi>"


def digest_of(text: str) -> str:
    """Return the digest of a style or script for the page's content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def picture_html(pixels: NDArray[np.uint8] | None, key: str) -> str:
    """Return an HTML image with embedded bytes, or a box with a note if it is missing.

    Args:
        pixels: RGB uint8, shape (H, W, 3), or None if unreadable.
        key: of the image, for the alternative text.
    """
    if pixels is None:
        return '<span class="unreadable">not readable</span>'
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=JPEG_QUALITY)
    data = base64.b64encode(buffer.getvalue()).decode()
    height, width = pixels.shape[:2]
    return f'<img src="data:image/jpeg;base64,{data}" width="{width}" height="{height}" alt="{escaped(key)}">'
