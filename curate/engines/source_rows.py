"""Some rows of a source, in any order, as a source that engines can score."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.manifest import Manifest
from curate.manifest.contract import Reader, check_range
from curate.tables.images import readers_in_order

WIDEST = 4096  # maximum gap between rows read in one piece
STEP = 65_536  # rows of columns at a time


class ManifestRows:
    """Some rows of a source, by their numbers, shape (N,); see `Manifest` for each member."""

    def __init__(self, manifest: Manifest, numbers: NDArray[np.int64]) -> None:
        self._manifest, self._numbers = manifest, numbers
        self.n_rows = len(numbers)
        self.description, self.schema = manifest.description, manifest.schema
        self.renamed, self.classes, self.connections = manifest.renamed, manifest.classes, manifest.connections

    @cached_property
    def digest(self) -> str:
        """Hex sha256 over the digest of the source and the chosen rows."""
        return self._digest(self._manifest.digest)

    def digest_without(self, absent: Set[int]) -> str:
        """Return `digest` as if the files of these rows were missing."""
        return self._digest(self._manifest.digest_without({int(self._numbers[row]) for row in absent}))

    def _digest(self, of_source: str) -> str:
        return hashlib.sha256(of_source.encode() + self._numbers.astype("<i8").tobytes()).hexdigest()

    def rows(self, start: int, stop: int) -> pa.Table:
        """Return rows [start, stop)."""
        pieces = [
            self._manifest.rows(int(piece[0]), int(piece[-1]) + 1).take(pa.array(piece - piece[0]))
            for piece in self._pieces(start, stop, WIDEST)
        ]
        return pa.concat_tables(pieces) if pieces else self.schema.empty_table()

    def columns(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some of the user's columns."""
        for start in range(0, self.n_rows, STEP):
            yield self.rows(start, min(start + STEP, self.n_rows)).select(list(names))

    def files(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the size in bytes and the modification time of each row's file, -1 if unknown."""
        for piece in self._pieces(start, stop, WIDEST):
            yield from kept_of(self._manifest.files(int(piece[0]), int(piece[-1]) + 1), piece - piece[0])

    def readers(self, start: int, stop: int) -> Iterator[Reader]:
        """Yield a reader of each row."""
        for piece in self._pieces(start, stop, self._manifest.n_rows):
            yield from readers_in_order(self._manifest, piece)

    def _pieces(self, start: int, stop: int, widest: int) -> Iterator[NDArray[np.int64]]:
        """Yield row numbers in increasing pieces without a gap wider than ``widest``."""
        check_range(start, stop, self.n_rows)
        numbers = self._numbers[start:stop]
        step = np.diff(numbers)
        cuts = np.flatnonzero((step <= 0) | (step > widest)) + 1
        yield from (piece for piece in np.split(numbers, cuts) if len(piece))


def kept_of(values: Iterable[tuple[int, int]], places: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the values at ascending positions."""
    remaining = iter(places.tolist())
    at = next(remaining, None)
    for place, value in enumerate(values):
        if place == at:
            yield value
            at = next(remaining, None)


def in_shards(numbers: NDArray[np.int64], kept: dict[int, NDArray[np.int64]], shard_rows: int) -> NDArray[np.int64]:
    """Return rows in scoring order, given shards of them that are already scored.

    Args:
        numbers: of the rows, increasing, shape (N,).
        kept: rows of each scored shard, as many as the shard has.
        shard_rows: rows of a shard; the last may have fewer.

    >>> in_shards(np.array([0, 3, 4, 7, 9]), {0: np.array([4, 9])}, 2).tolist()
    [4, 9, 0, 3, 7]
    """
    order = np.empty_like(numbers)
    is_free = np.ones(len(numbers), bool)
    for shard, rows in kept.items():
        span = slice(shard * shard_rows, shard * shard_rows + len(rows))
        order[span], is_free[span] = rows, False
    order[is_free] = np.setdiff1d(numbers, np.concatenate([np.zeros(0, np.int64), *kept.values()]), assume_unique=True)
    return order
