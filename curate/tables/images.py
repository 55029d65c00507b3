"""Rows of a table drawn by a hash of their keys, and the bytes of their images."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY, STATUS, URI
from curate.manifest import Manifest, ReadError, SourceOptions, open_manifest, read_uri
from curate.tables.arrays import is_ok
from curate.tables.digests import key_bytes, plain
from curate.tables.table import Table
from scoring.errors import InputError

CHANGED = "changed"  # the bytes are not those that were scored
_STEP = 65_536


@dataclass(frozen=True)
class Original:
    """A row that was drawn, and its image.

    Attributes:
        row: number in the table.
        key: as text.
        data: encoded bytes; None where they cannot be had.
        problem: why not, as ``status: sentence``; empty where ``data`` is there.
    """

    row: int
    key: str
    data: bytes | None
    problem: str = ""


def drawn_rows(table: Table, n: int, *, seed: int) -> NDArray[np.int64]:
    """Return up to n rows whose image was scored: those whose keys hash lowest, lowest first.

    The same keys are drawn in whatever order the table has them; fewer are the first of more.

    Args:
        table: with ``key``; rows whose ``status`` is not ok are left out.
        n: >= 1.
        seed: another seed draws other rows.

    Returns:
        Row numbers, shape (min(n, rows that are ok),).
    """
    table.require([KEY])
    names = [KEY, *([STATUS] if STATUS in table.schema.names else [])]
    salt = seed.to_bytes(8, "little", signed=True)
    best, rows = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    start = 0
    for batch in table.batches(names):
        ok = is_ok(plain(batch.column(STATUS))) if STATUS in names else np.ones(batch.num_rows, bool)
        digests = [hashlib.blake2b(key, digest_size=8, salt=salt).digest() for key in key_bytes(batch.column(KEY))]
        hashes = np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)
        best = np.concatenate([best, hashes[ok]])
        rows = np.concatenate([rows, start + np.flatnonzero(ok)])
        least = np.argsort(best, kind="stable")[:n]
        best, rows = best[least], rows[least]
        start += batch.num_rows
    return rows


def require_images(table: Table, source: str | None) -> None:
    """Refuse a table without any path to an image, where no source is named either: before the work, not after it.

    Raises:
        InputError: naming ``--source``.
    """
    if source is not None or not table.n_rows:
        return
    if URI not in table.schema.names or all(part.column(0).null_count == len(part) for part in table.batches([URI])):
        raise InputError(f"{table.path} holds no path to any image; name what was scored with --source")


class Originals:
    """Reads the images behind rows of a table: from their uris, or from what was scored.

    Args:
        table: with ``key``, and with ``uri`` unless a source is given.
        rows: every row that will be asked for; their keys, uris and digests are read once.
        source: what was scored; rows are found by key.
        options: how to read the source, as when it was scored.

    Raises:
        InputError: if a row has neither a path nor a source, or the source lacks its key.
    """

    def __init__(
        self,
        table: Table,
        rows: Sequence[int] | NDArray[np.int64],
        *,
        source: str | None = None,
        options: SourceOptions | None = None,
    ) -> None:
        names = [name for name in (KEY, URI, "sha256") if name in table.schema.names]
        self._values = _values(table, np.unique(np.asarray(rows, np.int64)), names)
        self._manifest: Manifest | None = None
        self._place: dict[str, int] = {}
        if source is not None:
            self._manifest = open_manifest(source, options or SourceOptions())
            self._find_places(source)
            return
        absent = sum(values.get(URI) is None for values in self._values.values())
        if absent:
            raise InputError(
                f"{table.path} holds no path to {absent:,} of {len(self._values):,} images; "
                "name what was scored with --source"
            )

    def _find_places(self, source: str) -> None:
        if self._manifest is None:
            raise ValueError("places are found in a source")
        wanted = pa.array([str(values[KEY]) for values in self._values.values()], pa.string())
        for start in range(0, self._manifest.n_rows, _STEP):
            keys = self._manifest.rows(start, min(start + _STEP, self._manifest.n_rows)).column(KEY)
            inside = pc.is_in(keys, value_set=wanted).to_numpy(zero_copy_only=False)
            self._place.update({keys[int(at)].as_py(): start + int(at) for at in np.flatnonzero(inside)})
        absent = [key for key in wanted.to_pylist() if key not in self._place]
        if absent:
            raise InputError(
                f"--source: {source} has no image with the key {absent[0]!r} ({len(absent):,} of {len(wanted):,} "
                "are missing); give what was scored, with the same --key"
            )

    def read(self, rows: Sequence[int]) -> Iterator[Original]:
        """Yield each row's image, in the order of the source; one that changed since it was scored is a problem."""
        for row in sorted(rows, key=lambda row: self._place.get(str(self._values[row][KEY]), row)):
            values = self._values[row]
            key = str(values[KEY])
            try:
                data = self._bytes(key, values)
            except ReadError as error:
                yield Original(row, key, None, f"{error.status}: {error}")
                continue
            scored = values.get("sha256")
            if scored is not None and hashlib.sha256(data).hexdigest() != scored:
                yield Original(row, key, None, f"{CHANGED}: the image is not the one that was scored")
            else:
                yield Original(row, key, data)

    def _bytes(self, key: str, values: dict[str, object]) -> bytes:
        if self._manifest is None:
            return read_uri(str(values[URI]))
        place = self._place[key]
        return next(self._manifest.readers(place, place + 1))()


def _values(table: Table, rows: NDArray[np.int64], names: Sequence[str]) -> dict[int, dict[str, object]]:
    found: dict[int, dict[str, object]] = {}
    start = at = 0
    for batch in table.batches(names):
        stop = int(np.searchsorted(rows, start + batch.num_rows))
        inside = rows[at:stop]
        found.update(zip(inside.tolist(), batch.take(pa.array(inside - start)).to_pylist(), strict=True))
        start, at = start + batch.num_rows, stop
    return found
