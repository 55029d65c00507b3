"""Keys as names of image files: safe on every file system, and each key's own."""

import hashlib
import re
from collections.abc import Iterable

from curate.manifest.names import IMAGE_SUFFIXES, some, suffix_of
from scoring.errors import InputError

_MOST = 180  # bytes of a name before what makes it its key's own; file systems take 255
_PLAIN = re.compile(r"(?!(con|prn|aux|nul|com\d|lpt\d)\.)[a-z0-9%][a-z0-9._%\-]*")  # those are devices on Windows


def file_name(key: str) -> str:
    """Return the name of a key's image, without the suffix that a key of no image suffix still needs.

    Every byte but ASCII letters, digits, `.`, `_` and `-` becomes `%XX`. A name that another key's might fold to
    where case does not count, that is cut, or that gets a suffix, ends in `~` and 8 hex digits of the key's sha256.
    So a name has no separator, is no `..`, does not start with a dot, and is made of the key alone.

    >>> file_name("cats/a b.jpg"), file_name("IMG_1.JPG"), file_name("007")
    ('cats%2Fa%20b.jpg', 'IMG_1~5ce2a9e8.JPG', '007~629f4cf9')
    """
    encoded = "".join(_encode(byte) for byte in key.encode())
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    suffix = suffix_of(key)
    has_suffix = suffix in IMAGE_SUFFIXES
    lower = re.sub("%[0-9A-F]{2}", "%", encoded)  # the digits of an escape are no letters of the key
    if has_suffix and len(encoded) <= _MOST and _PLAIN.fullmatch(lower):
        return encoded
    stem, ending = (encoded[: -len(suffix) - 1], encoded[-len(suffix) - 1 :]) if has_suffix else (encoded, "")
    return f"{_cut(stem)}~{hashlib.sha256(key.encode()).hexdigest()[:8]}{ending}"


def _encode(byte: int) -> str:
    letter = chr(byte)
    return letter if byte < 128 and (letter.isalnum() or letter in "._-") else f"%{byte:02X}"


def _cut(text: str) -> str:
    """Return the beginning of an encoded text, never half an escape."""
    return re.sub("%[0-9A-F]?$", "", text[:_MOST]) if len(text) > _MOST else text


def with_suffix(name: str, key: str, suffix: str) -> str:
    """Return a file name with an image suffix: its own, else the one found in the bytes."""
    return name if suffix_of(key) in IMAGE_SUFFIXES else f"{name}.{suffix}"


class KeyNames:
    """From the name of a file back to its key.

    Args:
        keys: of the round.

    Raises:
        InputError: if two keys have one name where case does not count.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._by_name: dict[str, str] = {}
        self._plain: set[str] = set()
        for key in keys:
            name = file_name(key).casefold()
            other = self._by_name.setdefault(name, key)
            if other != key:
                raise InputError(f"expected keys whose file names differ, got {other!r} and {key!r}; rename one")
            self._plain.add(key)

    def key_of(self, name: str) -> str | None:
        """Return the key of a file's name: as `file_name` made it, or the key itself; None where it is neither."""
        found = self._by_name.get(name.casefold())
        if found is None and suffix_of(name) in IMAGE_SUFFIXES:
            found = self._by_name.get(name.rpartition(".")[0].casefold())
            if found is not None and suffix_of(found) in IMAGE_SUFFIXES:  # such a key has its own suffix
                found = None
        if found is None and name in self._plain:
            found = name
        return found

    def __repr__(self) -> str:
        return f"KeyNames({some(len(self._plain), 'key')})"
