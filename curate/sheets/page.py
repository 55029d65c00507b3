"""Parts of a page of HTML: the user's text escaped, images inside, digests of scripts that may run."""

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
    """Return the user's text for HTML, between tags or quotes: on one line, bounded, in its own direction of writing.

    >>> escaped('<img src="x">')
    '&lt;img src=&quot;x&quot;&gt;'
    """
    return html.escape(plain_line(text, most), quote=True)


def isolated(text: str, most: int = 200) -> str:
    """Return the user's text as an element whose direction of writing cannot reach what stands around it."""
    return f"<bdi>{escaped(text, most)}</bdi>"


def digest_of(text: str) -> str:
    """Return the digest of a style or script, as a policy of a page names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def picture_html(pixels: NDArray[np.uint8] | None, key: str) -> str:
    """Return the image as an element with its bytes inside, or a box that says that none is given.

    Args:
        pixels: RGB uint8, shape (H, W, 3), or None where the image cannot be read.
        key: of the image; the text instead for those who do not see it.
    """
    if pixels is None:
        return '<span class="unreadable">not readable</span>'
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=JPEG_QUALITY)
    data = base64.b64encode(buffer.getvalue()).decode()
    height, width = pixels.shape[:2]
    return f'<img src="data:image/jpeg;base64,{data}" width="{width}" height="{height}" alt="{escaped(key)}">'
