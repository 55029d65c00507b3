"""File and folder names of keys and classes: unchanged if every file system allows them."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from curate.counted import counted
from curate.manifest.names import IMAGE_SUFFIXES, suffix_of
from curate.tables.digests import tie_breaks

_MOST = 180  # maximum bytes of a name before its digest; file systems allow 255
_MOST_PATH = 800  # maximum bytes of a path in the export; file systems allow 1,024 to 4,096
_NONE = "_none"
_DEVICE = re.compile(r"(con|prn|aux|nul|com[\d¹²³]|lpt[\d¹²³])(\.|$)", re.IGNORECASE)
_REFUSED = frozenset('<>:"/\\|?*%~')
SPLIT_WORDS = re.compile(r"(?<![a-z])(train|test|val|valid|validation|dev|eval)(ing|uation)?(?![a-z])", re.IGNORECASE)
OURS = ("metadata.jsonl", "data.yaml", "readme.md")  # file names of exports, not allowed as image folders


def key_path(key: str) -> tuple[str, bool]:
    """Return the path of a key with names that every file system allows, and whether it differs from the key.

    >>> key_path("cats/a b.jpg"), key_path("../a:b.jpg")
    (('cats/a b.jpg', False), ('%2E%2E/a%3Ab.jpg', True))
    """
    parts = [part for part in key.split("/") if part not in ("", ".")] or [key]
    safe = [_safe(part) for part in parts]
    safe[:-1] = [_escape_first(part) if _folded(part) in OURS else part for part in safe[:-1]]
    path = "/".join(safe)
    if len(path.encode()) > _MOST_PATH:
        path = safe[-1]
    return path, path != key or not path


def with_digest(path: str, key: str) -> str:
    """Return a path with 8 hex digits of the key's sha256 appended before an image suffix.

    >>> with_digest("cats/a.jpg", "cats/a.jpg")
    'cats/a~b0c3d230.jpg'
    """
    folder, slash, last = path.rpartition("/")
    suffix = suffix_of(last)
    stem, ending = (last[: -len(suffix) - 1], last[-len(suffix) - 1 :]) if suffix in IMAGE_SUFFIXES else (last, "")
    return f"{folder}{slash}{_cut(stem)}~{hashlib.sha256(key.encode()).hexdigest()[:8]}{ending}"


@dataclass(frozen=True)
class FileNames:
    """The path of each key's image: the key's own path, unless another image would get the same.

    A changed path, or one that equals another after folding case and Unicode composition, ends in ``~`` and 8 hex
    digits of the key's sha256. ``~`` in keys is escaped there, so no two images share a file.

    Attributes:
        nested: whether the folders of a key become folders; else only its last part is the name.
        encoded: suffix of the format in which every image is encoded; None for their own.
        kind: that format, or None.
        shared: sorted hashes of paths that several images would have, shape (M,) uint64.
    """

    nested: bool = False
    encoded: str | None = None
    kind: str | None = None
    shared: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    def of(self, key: str, suffix: str) -> str:
        """Return the path of a key's image; ``suffix``, from its bytes, is added if the key has no image suffix.

        >>> FileNames().of("cats/a.jpg", "png"), FileNames(nested=True).of("007", "png")
        ('a.jpg', '007.png')
        """
        path, changed = self.path_for(key)
        if changed or (len(self.shared) and _contains(self.shared, self.claim(path))):
            path = with_digest(path, key)
        return path if self._suffix_fits(path, suffix) else f"{path}.{suffix}"

    def path_for(self, key: str) -> tuple[str, bool]:
        """Return the path for a key without suffix, and whether it must be marked as changed."""
        path, changed = key_path(key)
        if self.nested:
            return path, changed
        last = path.rpartition("/")[2]
        return last, last != key.rpartition("/")[2] or not last

    def claim(self, path: str) -> str:
        """Return a form that is equal for paths that would be the same file; a path without suffix may get any."""
        folded = _folded(path)
        if self.encoded is not None:
            return folded if self._suffix_fits(path, self.encoded) else f"{folded}.{self.encoded}"
        return folded if suffix_of(path) in IMAGE_SUFFIXES else f"{folded}.*"

    def _suffix_fits(self, path: str, suffix: str) -> bool:
        old_suffix = suffix_of(path)
        return old_suffix in IMAGE_SUFFIXES if self.kind is None else old_suffix in (suffix, self.kind)


class Claims:
    """Collects the paths that keys request, and finds those requested twice; 24 bytes per key.

    ``has_split_words`` is whether a path contains a word that some loader interprets as a split; ``names`` has no
    ``shared``.
    """

    def __init__(self, names: FileNames) -> None:
        self._names = names
        self._files: list[NDArray[np.uint64]] = []
        self._stems: list[NDArray[np.uint64]] = []
        self._folders: dict[str, None] = {}
        self.has_split_words = False

    def add(self, keys: Iterable[str]) -> None:
        """Add keys."""
        paths = [self._names.path_for(key)[0] for key in keys]
        claims = [self._names.claim(path) for path in paths]
        self.has_split_words = self.has_split_words or any(map(SPLIT_WORDS.search, paths))
        self._files.append(tie_breaks([claim.encode() for claim in claims]))
        stems = [f"{_stem(claim)}.*" for claim in claims if not claim.endswith(".*")]
        self._stems.append(tie_breaks([stem.encode() for stem in stems]))
        for path in {path.rpartition("/")[0] for path in paths} - {""}:
            parts = _folded(path).split("/")
            self._folders |= dict.fromkeys("/".join(parts[:n]) for n in range(1, len(parts) + 1))

    def shared(self) -> NDArray[np.uint64]:
        """Return the sorted hashes of paths claimed by more than one image, or by an image and a folder."""
        files = np.concatenate(self._files) if self._files else np.zeros(0, np.uint64)
        once, counts = np.unique(files, return_counts=True)
        folders = tie_breaks([name.encode() for each in self._folders for name in (each, f"{_stem(each)}.*")])
        stems = np.concatenate([*self._stems, folders])
        return once[(counts > 1) | np.isin(once, stems)]


def _stem(path: str) -> str:
    suffix = suffix_of(path)
    return path[: -len(suffix) - 1] if suffix in IMAGE_SUFFIXES else path


def _contains(values: NDArray[np.uint64], text: str) -> bool:
    value = tie_breaks([text.encode()])[0]
    place = int(np.searchsorted(values, value))
    return place < len(values) and bool(values[place] == value)


def folder_names(values: Iterable[str | None]) -> dict[str | None, str]:
    """Return a folder name for each value: unchanged if every file system allows it and it is unique.

    Forbidden characters become `%XX`. A changed name, or one that equals another after folding case and Unicode
    composition, ends in `~` and 8 hex digits of the value's sha256. None is `_none`.

    >>> folder_names(["cat", "a/b", "..", "Dog", None])
    {'cat': 'cat', 'a/b': 'a%2Fb~c14cddc0', '..': '%2E%2E~5ec1f7e7', 'Dog': 'Dog', None: '_none'}
    """
    ordered = list(dict.fromkeys(values))
    alike = Counter(_folded(_NONE if value is None else value) for value in [*ordered, *OURS])
    names: dict[str | None, str] = {}
    for value in ordered:
        if value is None:
            names[value] = _NONE
            continue
        plain = _safe(value)
        if value and plain == value and alike[_folded(value)] == 1:
            names[value] = value
        else:
            names[value] = f"{_cut(plain)}~{hashlib.sha256(value.encode()).hexdigest()[:8]}"
    return names


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _safe(value: str) -> str:
    """Return a value with forbidden characters escaped, also those that a system drops or hides at the ends."""
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
    return _escape_first(text) if _DEVICE.match(text) else _shortened(text)


def _escape_first(text: str) -> str:
    return f"%{ord(text[0]):02X}{text[1:]}"


def _cut(text: str) -> str:
    return text.encode()[:_MOST].decode("utf-8", "ignore") if len(text.encode()) > _MOST else text


def _shortened(text: str) -> str:
    """Return a name of allowed length that keeps its image suffix."""
    suffix = suffix_of(text)
    if len(text.encode()) <= _MOST or suffix not in IMAGE_SUFFIXES:
        return _cut(text)
    return _cut(text[: -len(suffix) - 1]) + text[-len(suffix) - 1 :]


class KeyNames:
    """Finds the key of a file of a round by its name."""

    def __init__(self, keys: Iterable[str]) -> None:
        names = FileNames()
        self._keys = frozenset(keys)
        self._marked: dict[str, str] = {}
        self._plain: dict[str, list[str]] = {}
        for key in self._keys:
            path, _ = names.path_for(key)
            self._marked[_folded(with_digest(path, key))] = key
            self._plain.setdefault(_folded(path), []).append(key)

    def key_of(self, name: str) -> str | None:
        """Return the key of a file name made by ``FileNames``, or equal to a key; None if neither or ambiguous."""
        folded = _folded(name)
        tried = [folded, *([_stem(folded)] if suffix_of(name) in IMAGE_SUFFIXES else [])]
        for text in tried:
            if text in self._marked:
                return self._marked[text]
        if name in self._keys:
            return name
        for text in tried:
            keys = self._plain.get(text, [])
            # a key with an image suffix gets no other suffix
            keys = [key for key in keys if text == folded or suffix_of(key) not in IMAGE_SUFFIXES]
            if len(keys) == 1:
                return keys[0]
        return None

    def __repr__(self) -> str:
        return f"KeyNames({counted(len(self._keys), 'key')})"
