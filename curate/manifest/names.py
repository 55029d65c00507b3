"""File names are bytes; keys are text. Converts names to keys and URIs."""

import re
from urllib.parse import quote

from scoring.images.sniff import DECODED, sniff

_INVALID = re.compile("[\udc80-\udcff]")  # `surrogateescape` code points of bytes that are not UTF-8


def key_of(path: bytes) -> str:
    r"""Return the key of a relative path: the path itself if it is UTF-8.

    Otherwise `./`, then the path with every byte that is not UTF-8, and every `%`, as `%XX`. A scanned path
    never starts with `./`, so two paths never share a key.

    >>> key_of(b"cats/a%b.jpg"), key_of(b"cats/a%\xff.jpg")
    ('cats/a%b.jpg', './cats/a%25%FF.jpg')
    """
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        text = path.decode("utf-8", "surrogateescape").replace("%", "%25")
        return "./" + _INVALID.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", text)


def uri_of(path: bytes) -> str:
    r"""Return the uri of an absolute path: the path itself if it is UTF-8, else a quoted `file://` URL.

    >>> uri_of(b"/a b.jpg"), uri_of(b"/a b\xff.jpg")
    ('/a b.jpg', 'file:///a%20b%FF.jpg')
    """
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return "file://" + quote(path)


# Suffixes of images, lower case. The decoder uses only the bytes; a format that it cannot
# decode is listed too, so that it becomes a row with a status instead of being skipped silently.
_PHOTOS = {"jpg", "jpeg", "jpe", "jfif", "mpo", "png", "apng", "webp", "gif", "tif", "tiff", "bmp", "dib", "avif"}
_DECODED = {*_PHOTOS, "ppm", "pgm", "pbm", "pnm", "ico"}
_BY_EXTRA = {"heic", "heif", "hif"}
_NEVER_DECODED = {"jxl", "jp2", "j2k", "tga"}
MOST_NAMED = 4  # suffixes in a message
# Folders that are the sides of a split.
SIDE_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val"}
SIDE_NAMES |= {"test": "test", "testing": "test"}
_OF_SETS = ("", "_set", "2012", "2014", "2015", "2017")  # as in training_set, and in train2017 of COCO
SIDES = {(name + more).encode(): side for name, side in SIDE_NAMES.items() for more in _OF_SETS}
IMAGE_SUFFIXES = frozenset(_DECODED | _BY_EXTRA | _NEVER_DECODED)
_IMAGE_INSIDE = re.compile(
    rf".\.(?:{'|'.join(sorted(_DECODED | _BY_EXTRA))})[^a-z0-9]"
)  # as of wget: a.jpg.1, a.jpg?w=200


def suffix_of(name: bytes | str) -> str:
    """Return the lower-case suffix of a file name without its dot, or "" if absent.

    >>> suffix_of(b"A.JPG"), suffix_of("README"), suffix_of(".png")
    ('jpg', '', '')
    """
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    stem, dot, suffix = text.rpartition(".")
    return suffix.lower() if dot and stem else ""


def is_image_name(name: bytes | str) -> bool:
    """Return whether a file name has the suffix of an image."""
    return suffix_of(name) in IMAGE_SUFFIXES


def may_be_an_image(name: bytes | str) -> bool:
    """Return whether only the content shows what a file is: no suffix, or an image suffix in the middle.

    >>> may_be_an_image("a1b2c3"), may_be_an_image("a.jpg.1"), may_be_an_image("a.jpeg?w=200"), may_be_an_image("a.txt")
    (True, True, True, False)
    """
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    return not suffix_of(text) or (not is_image_name(text) and _IMAGE_INSIDE.search(text.lower()) is not None)


def begins_like_an_image(head: bytes) -> bool:
    """Return whether the first `sniff.HEAD` bytes of a file belong to a supported image format.

    For names without a suffix, as in crawls: `a1b2c3`, the hash of the image.
    """
    return sniff(head) in DECODED


def count_suffixes(counts: dict[str, int]) -> str:
    """Return counts of suffixes for display, most frequent first.

    >>> count_suffixes({"txt": 10, "md": 2})
    '10 .txt, 2 .md'
    """
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{n:,} .{suffix}" if suffix else f"{n:,} without suffix" for suffix, n in ordered[:MOST_NAMED]]
    rest = sum(n for _, n in ordered[MOST_NAMED:])
    return ", ".join(parts) + (f", {rest:,} others" if rest else "")


def error_line(error: Exception) -> str:
    """Return the start of an error's text, without line breaks."""
    return " ".join(str(error).split())[:200]
