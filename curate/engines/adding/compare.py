"""A table compared with its current source: known, new, changed and removed rows."""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import GONE, KEY, MTIME, N_BYTES, OK, STATUS, URI
from curate.counted import counted
from curate.engines.finished import changed_rows
from curate.engines.setup import RunSetup
from curate.manifest.ahead import ahead
from curate.manifest.contract import Manifest, Reader, ReadError
from curate.tables.images import readers_in_order
from curate.tables.keys import check_unique, key_hashes
from curate.tables.needs import SHA256
from curate.tables.table import Table
from scoring.errors import InputError

UNKNOWN = -1  # a size or a time
STEP = 65_536  # rows per batch
SAMPLE = 16  # known rows whose bytes are compared if a source has no file times
MOST_GONE = 0.5  # maximum share of missing images: beyond, the source is another or incomplete
UNREADABLE = ""
LOCAL = r"^(?:file://|(?:[^:]|:[^/]|:/[^/])*$)"  # anything but a remote URL


@dataclass
class Comparison:
    """A table of N rows compared with a source of M rows.

    Attributes:
        at: row of the table with the key of each row of the source, shape (M,); -1 for none.
        sizes: of the source files, in bytes, shape (M,); -1 if unknown.
        times: modification times of the source files, in ns, shape (M,); -1 if unknown.
        score: whether a row of the source is to be scored, shape (M,).
        absent: whether the file of a row of the source was removed, shape (M,).
        gone: rows of the table whose key the source no longer has, increasing.
        renamed: whether a row of the source has the bytes of a table row with another key, shape (M,).
        edited: whether user columns of a known image differ from the table, shape (M,).
        n_new: new rows to score.
        n_changed: rows to score whose image changed, or is back.
        n_again: rows to score that failed before, and would not fail in the same way now.
        n_gone: removed images.
        n_touched: known images whose file has another time, and the same bytes.
        uris: current locations of the images, shape (M,); None if all known ones are unchanged.
        notes: for the user.
    """

    at: NDArray[np.int64]
    sizes: NDArray[np.int64]
    times: NDArray[np.int64]
    score: NDArray[np.bool_]
    absent: NDArray[np.bool_]
    gone: NDArray[np.int64]
    renamed: NDArray[np.bool_]
    edited: NDArray[np.bool_]
    n_new: int = 0
    n_changed: int = 0
    n_again: int = 0
    n_gone: int = 0
    n_touched: int = 0
    uris: pa.ChunkedArray | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def todo(self) -> NDArray[np.int64]:
        """Return the rows of the source to score, increasing."""
        return np.flatnonzero(self.score)

    @property
    def differs(self) -> bool:
        """Return whether the table must be written again."""
        rewritten = self.score.any() or self.renamed.any() or self.edited.any()
        return bool(rewritten or self.n_gone or self.n_touched or self.uris is not None)

    def words(self) -> str:
        """Return the differences in one line."""
        n_images = len(self.at) - int(self.absent.sum())
        n_known = n_images - int(self.score.sum())
        more = [f"{int(self.renamed.sum()):,} of them renamed"] if self.renamed.any() else []
        more += [f"{int(self.edited.sum()):,} of them with other values in your columns"] if self.edited.any() else []
        counts = [f"{self.n_new:,} new", f"{self.n_changed:,} changed", f"{self.n_gone:,} gone"]
        again = [f"{self.n_again:,} read again"] if self.n_again else []
        return f"{counted(n_images, 'image')}: {', '.join([f'{n_known:,} known', *more, *counts, *again])}"


@dataclass(frozen=True)
class _Known:
    """The known values of N images of a table."""

    keys: pa.Array
    status: NDArray[np.object_]
    sizes: NDArray[np.int64]
    times: NDArray[np.int64]
    sha256: pa.Array
    uris: pa.Array

    @property
    def has_digest(self) -> NDArray[np.bool_]:
        """Whether the digest of each image is known, shape (N,)."""
        return np.asarray(self.sha256.is_valid().to_numpy(zero_copy_only=False))

    def take(self, rows: NDArray[np.int64]) -> "_Known":
        """Return the known values of some rows."""
        at = pa.array(rows)
        sha256, uris = self.sha256.take(at), self.uris.take(at)
        return _Known(self.keys.take(at), self.status[rows], self.sizes[rows], self.times[rows], sha256, uris)

    @classmethod
    def of(cls, table: Table) -> "_Known":
        check_unique(table, key_hashes(table))
        rows = table.read([name for name in (KEY, URI, STATUS, N_BYTES, MTIME, SHA256) if name in table.schema.names])
        names = rows.column_names
        if rows.num_rows != table.n_rows:
            raise InputError(f"{table.path} changed while it was being read; run the command again")

        def numbers(name: str) -> NDArray[np.int64]:
            if name not in names:
                return np.full(table.n_rows, UNKNOWN)
            return np.asarray(pc.fill_null(rows[name].cast(pa.int64()), UNKNOWN).to_numpy())

        def texts(name: str) -> pa.Array:
            if name not in names:
                return pa.nulls(table.n_rows, pa.string())
            return rows[name].cast(pa.string()).combine_chunks()

        status = texts(STATUS) if STATUS in names else pa.array([OK] * table.n_rows)
        sizes, times = numbers(N_BYTES), numbers(MTIME)
        return cls(texts(KEY), status.to_numpy(zero_copy_only=False), sizes, times, texts(SHA256), texts(URI))


def compare(table: Table, setup: RunSetup) -> Comparison:
    """Return which rows of a source are known to a table, and which are new, changed or removed.

    A file of another size is another image; a file of another time is one if its digest differs. A new or changed file
    with the bytes of a row that lost its key is that image, renamed.

    Raises:
        InputError: if no key is in common, or more than half of the images were removed, which suggests another source.
    """
    known, manifest, retry = _Known.of(table), setup.opened.manifest, setup.request.retry
    at, sizes, times, is_local, uris = _matched(known.keys, manifest)
    is_known = at >= 0
    was = known.take(at.clip(0))  # for unknown rows, the first row
    absent = is_known & is_local & (sizes == UNKNOWN) & (times == UNKNOWN) & (was.times != UNKNOWN)
    comparison = Comparison(
        at, sizes, times, ~is_known, absent, _missing(at, len(known.keys)), *np.zeros((2, len(at)), bool)
    )
    is_present = is_known & ~absent
    may_pass = is_present & np.isin(was.status, list(retry))
    if (is_present & np.asarray(pc.fill_null(pc.not_equal(uris.cast(pa.string()), was.uris), False))).any():
        comparison.uris = uris
        setup.request.options.announce("images have new paths: the table is updated")
    changed = is_present & ((was.status == GONE) | (_both(sizes, was.sizes) & (sizes != was.sizes)))
    moved = _both(times, was.times) & (times != was.times)
    changed |= is_present & moved & ~was.has_digest
    look = is_present & ~changed & ~may_pass & was.has_digest
    look &= setup.request.options.check | moved | ((times != UNKNOWN) & (was.times == UNKNOWN))
    changed |= _other_bytes(setup, np.flatnonzero(look), was, comparison)
    comparison.n_touched = int((look & moved & ~changed).sum())
    _find_renamed(setup, known, changed, comparison)
    changed &= ~comparison.renamed
    comparison.n_new = int((~is_known & ~comparison.renamed).sum())
    comparison.n_gone = int((was.status[absent] != GONE).sum() + (known.status[comparison.gone] != GONE).sum())
    any_known = bool(is_known.any() or comparison.renamed.any())
    _refuse_other(table, manifest, comparison, int((known.status != GONE).sum()), any_known)
    if not setup.request.options.check and not (times != UNKNOWN).any():
        _check_sample(table, setup, np.flatnonzero(is_present & ~changed & ~comparison.renamed & was.has_digest), was)
        comparison.notes.append(
            "the source has no modification times: only --check finds an image that changed under its key at "
            "the same size"
        )
    failed, again = np.flatnonzero(may_pass & ~changed & ~comparison.renamed), np.zeros(manifest.n_rows, bool)
    again[failed] = changed_rows(setup, failed, was.status[failed].tolist(), retry)
    comparison.score |= changed | again
    comparison.n_changed, comparison.n_again = int(changed.sum()), int(again.sum())
    comparison.edited = _edited(table, manifest, at, is_present & ~comparison.score & ~comparison.renamed)
    return comparison


def _edited(table: Table, manifest: Manifest, at: NDArray[np.int64], among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which known rows of a source have other values in the user's columns than the table, shape (M,)."""
    edited = np.zeros(len(at), bool)
    stored = table.stored.schema
    user_columns = [name for name in manifest.schema.names if name not in (KEY, URI)]
    names = [name for name in user_columns if name in stored.names]
    fields = [wider(stored.field(name), manifest.schema) for name in names]
    start = 0
    for rows in manifest.columns(names) if names else ():
        some = start + np.flatnonzero(among[start : start + rows.num_rows])
        then = table.stored.take(at[some], names)
        for known in fields:
            now = as_stored(
                rows.column(known.name), known, table
            )  # of all rows, so that unsuitable new rows are refused early
            edited[some] |= differ(now.take(pa.array(some - start)), as_stored(then.column(known.name), known, table))
        start += rows.num_rows
    if len(names) < len(user_columns):  # the table lacks the column
        return among
    return edited


def differ(now: pa.ChunkedArray, then: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return where two columns of one type differ, shape (N,); two missing values are equal, as are two NaNs."""
    if pa.types.is_nested(now.type):
        return np.array([a != b for a, b in zip(now.to_pylist(), then.to_pylist(), strict=True)], bool)
    same = pc.fill_null(pc.equal(now, then), False)
    missing = pc.and_(pc.is_null(now, nan_is_null=True), pc.is_null(then, nan_is_null=True))
    return ~np.asarray(pc.or_(same, missing).to_numpy(), bool)


def wider(stored: pa.Field, source: pa.Schema) -> pa.Field:
    """Return a table field with the type of the source's, if the field is empty or has narrower numbers.

    >>> wider(pa.field("weight", pa.int64()), pa.schema([("weight", pa.float64())])).type
    DataType(double)
    """
    if stored.name in (KEY, URI) or stored.name not in source.names:
        return stored
    now, was = source.field(stored.name).type, stored.type
    are_numbers = all(pa.types.is_integer(each) or pa.types.is_floating(each) for each in (was, now))
    if are_numbers:
        old, new = ((pa.types.is_floating(each), each.bit_width) for each in (was, now))
        return stored.with_type(now) if old < new else stored
    return stored.with_type(now) if pa.types.is_null(was) else stored


def as_stored(values: pa.Array | pa.ChunkedArray, field: pa.Field, table: Table) -> pa.Array | pa.ChunkedArray:
    """Return values with the type of a field of a table; InputError if it cannot represent them."""
    if values.type == field.type:
        return values
    try:
        return values.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"column {field.name!r} holds {field.type} in {table.path}, and {values.type} in the source now ({error}): "
            "correct the values in the source, leave them empty, or score to another --out"
        ) from None


def _find_renamed(setup: RunSetup, known: _Known, changed: NDArray[np.bool_], comparison: Comparison) -> None:
    """Match new and changed files to rows that lost their keys, by their bytes.

    Only files of equal size are read. Of identical rows the first is matched to the first identical file.
    """
    lost = np.r_[comparison.gone, comparison.at[changed]]
    lost = lost[known.has_digest[lost] & ~np.isin(known.status[lost], [GONE, *setup.request.retry])]
    sizes, is_other = comparison.sizes, comparison.score | changed
    candidates = np.flatnonzero(is_other & (sizes != UNKNOWN) & np.isin(sizes, known.sizes[lost]))
    if not len(candidates):
        return
    setup.request.options.announce(f"comparing {counted(len(candidates), 'new image')} with those that disappeared")
    rows_by_digest: dict[str, list[int]] = {}
    for row, digest in zip(lost[::-1].tolist(), known.sha256.take(pa.array(lost[::-1])).to_pylist(), strict=True):
        rows_by_digest.setdefault(digest, []).append(row)
    row_of: dict[int, int] = {}
    for some, digests in _digests(setup, candidates, setup.settings.shard_size):
        for row, digest in zip(some.tolist(), digests, strict=True):
            if rows := rows_by_digest.get(digest):
                row_of[row] = rows.pop()
    taken = np.array([*row_of.values()], np.int64)
    comparison.at[changed & np.isin(comparison.at, taken)] = -1
    comparison.renamed[[*row_of]] = True
    comparison.at[comparison.renamed] = [row_of[row] for row in sorted(row_of)]
    comparison.score[comparison.renamed] = False
    comparison.gone = np.setdiff1d(comparison.gone, taken)


def _both(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return where both are known (not -1)."""
    return np.asarray((a != UNKNOWN) & (b != UNKNOWN))


def _matched(
    keys: pa.Array, manifest: Manifest
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_], pa.ChunkedArray]:
    """Return the table row of each source row, sizes and times of files, whether they are local, and URIs."""
    source_keys, uris, files, local = [], [], [], []
    for start in range(0, manifest.n_rows, STEP):
        stop = min(start + STEP, manifest.n_rows)
        rows = manifest.rows(start, stop)
        source_keys += rows.column(KEY).chunks
        uris += rows.column(URI).chunks
        local.append(pc.fill_null(pc.match_substring_regex(rows.column(URI), LOCAL), False).to_numpy())
        files.append(np.array(list(manifest.files(start, stop)), np.int64).reshape(-1, 2))
    # in one call, since each call indexes all keys of the table
    at = pc.fill_null(pc.index_in(pa.chunked_array(source_keys, keys.type), value_set=keys), -1)
    both = np.concatenate(files)
    return at.to_numpy().astype(np.int64), both[:, 0], both[:, 1], np.concatenate(local), pa.chunked_array(uris)


def _missing(at: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return the rows of a table that no row of the source has."""
    is_matched = np.zeros(n, bool)
    is_matched[at[at >= 0]] = True
    return np.flatnonzero(~is_matched)


def _refuse_other(table: Table, manifest: Manifest, comparison: Comparison, n_images: int, any_known: bool) -> None:
    if not any_known:
        raise InputError(
            f"{table.path} and the source ({manifest.description}) have no key in common: expected the source "
            "that was scored, with more images; score this one to another --out"
        )
    if comparison.n_gone > MOST_GONE * n_images:
        raise InputError(
            f"{comparison.n_gone:,} of the {counted(n_images, 'image')} of {table.path} are no longer in the "
            f"source ({manifest.description}), which is more than half: pass all of it, or score it to another --out"
        )


def _digests(setup: RunSetup, rows: NDArray[np.int64], block: int) -> Iterable[tuple[NDArray[np.int64], list[str]]]:
    """Yield rows of a source in batches, with the digest of each image; empty if it cannot be read."""
    manifest = setup.opened.manifest
    with ThreadPoolExecutor(setup.request.options.workers) as pool:
        for first in range(0, len(rows), block):
            some = rows[first : first + block]
            readers = ahead(readers_in_order(manifest, some), manifest.connections)
            yield some, list(pool.map(_digest_of, readers))


def _digest_of(read: Reader) -> str:
    try:
        return hashlib.sha256(read()).hexdigest()
    except ReadError:
        return UNREADABLE


def _other_bytes(setup: RunSetup, rows: NDArray[np.int64], was: _Known, comparison: Comparison) -> NDArray[np.bool_]:
    """Return which rows of a source have other bytes than the table records; unreadable images count as unchanged."""
    other = np.zeros(len(comparison.at), bool)
    unreadable = 0
    if len(rows):
        setup.request.options.announce(f"comparing {counted(len(rows), 'known image')} by sha256")
    for some, digests in _digests(setup, rows, setup.settings.shard_size):
        before = was.sha256.take(pa.array(some)).to_pylist()
        unreadable += digests.count(UNREADABLE)
        other[some] = [now not in (UNREADABLE, then) for now, then in zip(digests, before, strict=True)]
    if unreadable:
        comparison.notes.append(f"{counted(unreadable, 'known image')} could not be read now, and keep their scores")
    return other


def _check_sample(table: Table, setup: RunSetup, rows: NDArray[np.int64], was: _Known) -> None:
    """Refuse a source whose keys now belong to other images, such as row numbers after an insertion."""
    if not len(rows):
        return
    sample = np.unique(rows[np.linspace(0, len(rows) - 1, SAMPLE).astype(int)])
    for some, digests in _digests(setup, sample, SAMPLE):
        before = was.sha256.take(pa.array(some)).to_pylist()
        other = [row for row, now, then in zip(some, digests, before, strict=True) if now not in (UNREADABLE, then)]
        if other:
            key = setup.opened.manifest.rows(int(other[0]), int(other[0]) + 1).column(KEY)[0].as_py()
            raise InputError(
                f"{key!r} names another image than in {table.path} ({len(other)} of {len(some)} that were compared): "
                "add --check to compare all, or score to another --out"
            )
