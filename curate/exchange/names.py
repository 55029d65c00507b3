"""Keys as names of image files: safe on every file system, and each key's own."""

import hashlib
import re
import unicodedata
from collections import Counter
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


def image_name(key: str, suffix: str, kind: str | None = None) -> str:
    """Return the name of a key's image: with an image suffix, its own, else the one found in the bytes.

    Args:
        key: of it.
        suffix: by the bytes.
        kind: the format that every image is encoded in, where one is; a suffix that says another is not the last.

    >>> image_name("a.jpg", "jpg"), image_name("a.jpg", "webp", "webp")
    ('a.jpg', 'a.jpg.webp')
    """
    own = suffix_of(key)
    fits = own in IMAGE_SUFFIXES if kind is None else own in (suffix, kind)
    return file_name(key) if fits else f"{file_name(key)}.{suffix}"


def folder_names(values: Iterable[str | None]) -> dict[str | None, str]:
    """Return a folder's name for each value: as it is where every file system takes it, and no other is like it.

    What no file system takes becomes `%XX`, and a name that was changed, or that another is like where case and
    composition do not count, ends in `~` and 8 hex digits of the value's sha256. None is `_none`.

    >>> folder_names(["cat", "a/b", "..", "Dog", None])
    {'cat': 'cat', 'a/b': 'a%2Fb~c14cddc0', '..': '%2E%2E~5ec1f7e7', 'Dog': 'Dog', None: '_none'}
    """
    ordered = list(dict.fromkeys(values))
    alike = Counter(_folded(_NONE if value is None else value) for value in ordered)
    names: dict[str | None, str] = {}
    for value in ordered:
        if value is None:
            names[value] = _NONE
            continue
        plain = _safe(value)
        if value and plain == value and alike[_folded(value)] == 1:
            names[value] = value
        else:
            names[value] = f"{_short(plain)}~{hashlib.sha256(value.encode()).hexdigest()[:8]}"
    return names


_NONE = "_none"
_DEVICE = re.compile(r"(con|prn|aux|nul|com[\d¹²³]|lpt[\d¹²³])(\.|$)", re.IGNORECASE)
_REFUSED = frozenset('<>:"/\\|?*%~')


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _safe(value: str) -> str:
    """Return a value whose every letter a folder's name can have, none first or last that systems drop or hide."""
    last = len(value) - 1
    letters = [
        f"%{ord(letter):02X}"
        if letter in _REFUSED
        or not (letter.isprintable())
        or (letter in ". " and index in (0, last))
        or (index == 0 and letter == "-")
        else letter
        for index, letter in enumerate(value)
    ]
    text = "".join(letters)
    return f"%{ord(text[0]):02X}{text[1:]}" if _DEVICE.match(text) else _short(text)


def _short(text: str) -> str:
    return text.encode()[:_MOST].decode("utf-8", "ignore") if len(text.encode()) > _MOST else text


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
