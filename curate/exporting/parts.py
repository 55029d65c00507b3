"""Where formats write: the files and pieces of one part, and the export that joins all parts."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

from curate.exporting.names import FileNames
from curate.exporting.row_images import ExportedImage, Lost, RowImages, fresh
from curate.exporting.rows import Rows
from curate.manifest.text import to_json
from scoring.atomic import AtomicFile, place_errors

CHUNK = 1 << 20
COMMA = b",\n"  # between the items of a JSON list


@dataclass(frozen=True)
class Entry:
    """A written file: its path in the folder, size and digest (empty for a link)."""

    name: str
    n_bytes: int
    sha256: str


class HashedFile:
    """Context manager of a file being written and the digest of its bytes.

    Args:
        folder: of the file.
        name: its path in the folder.
        entries: list to which it is added when it is closed without an error.
    """

    def __init__(self, folder: Path, name: str, entries: list[Entry]) -> None:
        self._path, self._name, self._entries = folder / name, name, entries
        self._hash = hashlib.sha256()
        self.n_bytes = 0

    def __enter__(self) -> Self:
        with place_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = fresh(self._path).open("xb")
        return self

    def __exit__(self, *error: object) -> None:
        with place_errors(self._path):
            self._file.close()
        if error[0] is None:
            self._entries.append(self.entry())

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._file.closed

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; return their number."""
        self._hash.update(data)
        with place_errors(self._path):
            self._file.write(data)
        self.n_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the position, which is always the end."""
        return self.n_bytes

    def flush(self) -> None:
        """Flush buffered bytes to the system."""
        with place_errors(self._path):
            self._file.flush()

    def entry(self) -> Entry:
        """Return the file's entry for the manifest."""
        return Entry(self._name, self.n_bytes, self._hash.hexdigest())


@dataclass
class Part:
    """A part being written.

    Attributes:
        number: of the part.
        folder: of the exported files.
        reader: reads images.
        entries: files written.
        pieces: text by name, to be joined with the pieces of other parts.
        lost: rows whose image cannot be read.
        written: number of rows written.
    """

    number: int
    folder: Path
    reader: RowImages
    entries: list[Entry] = field(default_factory=list)
    pieces: dict[str, bytearray] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)
    written: int = 0

    def piece(self, name: str, data: bytes) -> None:
        """Append to a named piece."""
        self.pieces.setdefault(name, bytearray()).extend(data)

    def items(self, name: str, values: Iterable[Any]) -> None:
        """Set a named piece to the items of a JSON list, which ``AllParts.join`` separates by ``COMMA``."""
        self.piece(name, COMMA.join(to_json(value, indent=None)[:-1] for value in values))

    def file(self, name: str) -> HashedFile:
        """Return a new file at path ``name`` in the folder, to write to."""
        return HashedFile(self.folder, name, self.entries)

    def read(self, rows: Rows) -> Iterator[ExportedImage]:
        """Yield the image of every row that has one."""
        yield from self._without_lost(self.reader.read(rows))

    def store(self, rows: Rows, names: FileNames, folder_of: Callable[[int], str]) -> Iterator[ExportedImage]:
        """Write the image of every row that has one to a file named after its key.

        Args:
            rows: of the part.
            names: image file names.
            folder_of: index of a row -> its folder, a safe name; empty for the top folder.
        """
        folders = [folder_of(index) for index in range(len(rows))]
        inside = [names.of(key, "jpg").rpartition("/")[0] for key in rows.keys] if names.nested else []
        with place_errors(self.folder):
            for name in {f"{a}/{b}".strip("/") for a, b in zip(folders, inside or [""] * len(rows), strict=True)}:
                (self.folder / name).mkdir(parents=True, exist_ok=True)

        def name_of(index: int, suffix: str) -> str:
            name = names.of(rows.keys[index], suffix)
            return f"{folders[index]}/{name}" if folders[index] else name

        for image in self._without_lost(self.reader.store(rows, self.folder, name_of)):
            self.entries.append(Entry(image.name, image.n_bytes, image.sha256))
            yield image

    def _without_lost(self, images: Iterator[ExportedImage | Lost]) -> Iterator[ExportedImage]:
        for image in images:
            if isinstance(image, Lost):
                self.lost.append(image)
            else:
                self.written += 1
                yield image


@dataclass
class AllParts:
    """All parts, to be joined.

    Attributes:
        folder: of the exported files.
        out: final path.
        overwrite: whether files may be replaced.
        n_rows: exported rows.
        places: paths of the pieces of a name, in the order of the parts.
        entries: further files of the folder.
        files: that will be at ``out`` and next to it, instead of a folder.
    """

    folder: Path
    out: Path
    overwrite: bool
    n_rows: int
    places: Callable[[str], Iterator[Path]]
    entries: list[Entry] = field(default_factory=list)
    files: list[AtomicFile] = field(default_factory=list)

    def target(self, path: Path, *, overwrite: bool | None = None) -> AtomicFile:
        """Return a file to write to that will be at ``path``."""
        self.files.append(AtomicFile(path, overwrite=self.overwrite if overwrite is None else overwrite))
        return self.files[-1]

    def write(self, name: str, *data: bytes) -> None:
        """Write a file of the folder."""
        with HashedFile(self.folder, name, self.entries) as file:
            for each in data:
                file.write(each)

    def join(self, file: AtomicFile | HashedFile, piece: str, separator: bytes = b"") -> None:
        """Append the pieces of a name to an open file, in part order; ``separator`` is between non-empty ones."""
        between = b""
        for path in self.places(piece):
            with path.open("rb") as source:
                first = True
                while data := source.read(CHUNK):
                    file.write(between + data if first else data)
                    first, between = False, separator

    def joined(self, name: str, piece: str, before: bytes = b"", after: bytes = b"", separator: bytes = b"") -> None:
        """Write a file of the folder from the pieces of a name."""
        with HashedFile(self.folder, name, self.entries) as file:
            file.write(before)
            self.join(file, piece, separator)
            file.write(after)
