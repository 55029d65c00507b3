"""The interface of every source of images: rows in a fixed order, and access to their bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, Protocol

import pyarrow as pa

from curate.options.fields import ReadingOptions
from scoring.settings import require_between

MAX_FILE_BYTES = 256 << 20  # bound on an image; larger ones get the status `too_large`
MAX_PATH_BYTES = 4096  # PATH_MAX of Linux; longer paths and URLs are errors or attacks
CONNECTIONS = 64  # concurrent requests: at 50 ms each, 1,280 images per second
MOST_CONNECTIONS = 512
NUMBERED = "#"  # as key column: number the rows

Reader = Callable[[], bytes]


class ReadError(Exception):
    """The bytes of one row could not be read: the row gets a status, and the run continues.

    Args:
        status: "missing" (no such file, or no path), "io_error" (exists, but reading failed), "too_large" (above the
            size bound), "denied" (the server or store refuses) or "refused" (in a private network, a local path in a
            remote source, or an unsupported URL).
        text: one sentence for display.
    """

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


def too_large(n_bytes: int | None, max_bytes: int) -> ReadError:
    """Return the error for an image above the size bound; ``n_bytes`` is None if its size is unknown."""
    size = "more" if n_bytes is None else f"{n_bytes:,} bytes, more"
    return ReadError(
        "too_large",
        f"{size} than the bound of {max_bytes:,} bytes an image; store it smaller, or raise max_bytes of curate.score",
    )


@dataclass(frozen=True, slots=True)
class RemoteReader:
    """A reader of at most ``max_bytes`` remote bytes, which `ahead.ReadAhead` requests before they are needed."""

    read: Callable[[int], bytes]
    max_bytes: int

    def __call__(self) -> bytes:
        """Return the bytes."""
        return self.read(self.max_bytes)


@dataclass(frozen=True, slots=True)
class HeldReader:
    """A reader of bytes that share memory with other rows' bytes, which is freed when all are dropped."""

    read: Reader

    def __call__(self) -> bytes:
        """Return the bytes."""
        return self.read()


@dataclass(frozen=True, kw_only=True)
class SourceOptions(ReadingOptions):
    """The user's options for a source.

    Args:
        reserved: further names that user columns may not have, since the caller will write them.

    Raises:
        InputError: if ``limit``, ``max_bytes`` or ``connections`` is below 1 or too large.
    """

    reserved: tuple[str, ...] = ()
    noted: ClassVar[bool] = False  # recorded with a table, not requested by a user

    def __post_init__(self) -> None:
        require_between("--limit", self.limit, 1, hint="leave it out for all rows")
        require_between("max_bytes", self.max_bytes, 1)
        require_between("--connections", self.connections, 1, MOST_CONNECTIONS)


@dataclass(frozen=True, kw_only=True)
class NotedOptions(SourceOptions):
    """Recorded options of a source; options that another form of it does not support are ignored."""

    noted: ClassVar[bool] = True


class Manifest(Protocol):
    """The rows of a source in a fixed order, and access to the bytes of each."""

    @property
    def description(self) -> str:
        """One line for display: `folder photos: 1,204 files`, and the numbers of skipped files."""

    @property
    def n_rows(self) -> int:
        """Number of rows, at least 1."""

    @property
    def schema(self) -> pa.Schema:
        """`key` (string), `uri` (string, may be null), then the user's own columns; never image bytes."""

    @property
    def digest(self) -> str:
        """Hex sha256 that changes with the input: order, keys, uris, sizes and times of files."""

    def digest_without(self, absent: Set[int]) -> str:
        """Return the `digest` as if the files of these rows were missing."""

    def files(self, start: int, stop: int) -> Iterable[tuple[int, int]]:
        """Return (size in bytes, mtime in ns) of the file of each row of [start, stop), as recorded; -1 if unknown."""

    @property
    def connections(self) -> int:
        """Number of concurrent remote readers; see `ahead`."""

    @property
    def renamed(self) -> dict[str, str]:
        """User columns renamed because curate uses their names, with the new names."""

    @property
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """The class names that the source itself lists, by column, in order."""

    def rows(self, start: int, stop: int) -> pa.Table:
        """Return rows [start, stop) with the columns of `schema`."""

    def columns(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some of the user's columns of all rows, in order, in batches."""

    def readers(self, start: int, stop: int) -> Iterator[Reader]:
        """Yield for each row of [start, stop), in order, a callable that returns its image or raises `ReadError`.

        The callables may run in other threads, concurrently and in any order. Readers of tables with embedded bytes
        hold a part of the table in memory, so stay a bounded number of rows ahead.
        """


def check_range(start: int, stop: int, n_rows: int) -> None:
    """Raise ValueError unless 0 <= start <= stop <= n_rows."""
    if not 0 <= start <= stop <= n_rows:
        raise ValueError(f"rows [{start}, {stop}) must lie inside [0, {n_rows})")
