"""The rows for judging a subset: which are kept, their classes, and which are test rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY
from curate.counted import counted, listed
from curate.evaluation.joined import LabelledFile, class_names, named_column, open_labelled
from curate.evaluation.options import EvaluateOptions
from curate.evaluation.subset.request import TestSide
from curate.options.values import several
from curate.tables.arrays import has_value
from curate.tables.digests import is_bytes, is_text, key_array, plain, redrawn, tie_breaks
from curate.tables.keys import check_unique, key_hashes
from curate.tables.known import TEXT_SUFFIXES, read_known
from curate.tables.needs import EMBEDDINGS, SHA256, Needs
from curate.tables.provenance import require_same_model
from curate.tables.rows import Codes, Rows, read_rows
from curate.tables.spelling import spelled_as
from curate.tables.table import Table, open_table
from curate.tables.vectors import rows_of
from scoring.errors import InputError
from scoring.relative.space import unit

DECISIONS = frozenset({"decision", "reason", "rule"})  # columns that identify a file of decisions
KEEP = "keep"
FEWEST_TESTED = 20
MOST_ROWS, LEAST_ROWS = 50_000, 20_000  # maximum training rows; fewer with many classes
MOST_CELLS = 4_000_000  # maximum of rows x classes
MOST_TESTED = 10_000
NOT_OK, NO_LABEL, NO_EMBEDDING = "status is not ok", "without a label", "without an embedding"


def kept_rows(path: str | Path, table: Table, rows: Rows) -> tuple[NDArray[np.bool_], int]:
    """Return which rows of a table are in a subset, shape (N,), and the size of the subset.

    Args:
        path: a table of the kept rows, the decisions of a policy, or a CSV, TSV or JSON lines file of keys.
        table: the full table.
        rows: of the table, in the order of the hashes of their keys.

    Raises:
        InputError: for keys that the table lacks, or an empty subset.
    """
    path = Path(path)
    if path.suffix.lower() in TEXT_SUFFIXES:
        hashes = spelled_as(read_known(path, labels=False), table).hashes
    else:
        opened = open_table(path, require=[KEY])
        if set(opened.schema.names) >= DECISIONS:
            hashes = np.concatenate([np.zeros(0, np.uint64), *map(_kept_of, opened.batches([KEY, "decision"]))])
        else:
            hashes = key_hashes(opened)
            check_unique(opened, hashes)
    if not len(hashes):
        raise InputError(f"--subset: expected kept rows in {path}, got none; an empty subset cannot be trained on")
    place = rows.find(hashes)
    lost = int((place < 0).sum())
    if lost:
        raise InputError(
            f"--subset: expected rows of {table.path}, got {counted(lost, 'key')} in {path} of {len(hashes):,} that it "
            "does not have; pass the table that the subset was made from"
        )
    kept = np.zeros(len(rows), bool)
    kept[place] = True
    return kept, int(kept.sum())


def _kept_of(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    stays = pc.equal(plain(batch.column("decision")), KEEP)
    return np.asarray(tie_breaks(key_array(batch.column(KEY).filter(stays))), np.uint64)


@dataclass(frozen=True)
class SubsetPool:
    """P rows with all facts for the evaluation, in the order of the hashes of their keys.

    Attributes:
        tables: the table, and a separate test table if any.
        source: index of each row's table, shape (P,) int8.
        row: row number in it, shape (P,).
        vectors: unit vectors, shape (P, D) float32.
        label: index in ``classes``, shape (P,) int64; -1 everywhere without labels.
        classes: names.
        of_class: number of table rows per class, before sampling, shape (C,).
        kept: whether a row is in the subset, shape (P,).
        tested: whether it is a test row, shape (P,).
        left_out: number of excluded rows by reason.
        share: sampled share of the trainable rows; 1 unless there were too many.
        rows_in_table: total number.
        rows_in_subset: total number.
        groups: by column, the group of every scored row of the table, and whether it was kept.
    """

    tables: Sequence[Table]
    source: NDArray[np.int8]
    row: NDArray[np.int64]
    vectors: NDArray[np.float32]
    label: NDArray[np.int64]
    classes: list[str]
    of_class: NDArray[np.int64]
    kept: NDArray[np.bool_]
    tested: NDArray[np.bool_]
    left_out: dict[str, int]
    share: float
    rows_in_table: int
    rows_in_subset: int
    groups: dict[str, tuple[Codes, NDArray[np.bool_]]] = field(default_factory=dict)

    @property
    def trainable(self) -> NDArray[np.int64]:
        """The rows that a training set may use, ascending."""
        return np.flatnonzero(~self.tested)

    @property
    def subset(self) -> NDArray[np.int64]:
        """The trainable rows of the subset, ascending."""
        return np.flatnonzero(self.kept & ~self.tested)

    @property
    def tests(self) -> NDArray[np.int64]:
        """The test rows, ascending."""
        return np.flatnonzero(self.tested)

    def part(self, stays: NDArray[np.bool_]) -> "SubsetPool":
        """Return the rows where ``stays``, shape (P,), is true."""
        arrays = {name: getattr(self, name)[stays] for name in ("source", "row", "vectors", "label", "kept", "tested")}
        return replace(self, **arrays)

    def without_tests(self, dropped: NDArray[np.int64], why: str) -> "SubsetPool":
        """Return the pool without some of its test rows."""
        stays = np.ones(len(self.row), bool)
        stays[dropped] = False
        return replace(self.part(stays), left_out={**self.left_out, why: int((~stays).sum())})

    def same_bytes(self) -> NDArray[np.bool_]:
        """Return which test rows have the same bytes as a trainable row, by sha256."""
        trained, tested = (
            _sha256(self.tables[0], self.row[self.trainable]),
            _sha256(self.tables[-1], self.row[self.tests]),
        )
        return np.asarray(
            pc.is_in(tested, value_set=trained.drop_null(), skip_nulls=True).to_numpy(zero_copy_only=False)
        )


def read_pool(table: Table, test: TestSide, options: EvaluateOptions) -> SubsetPool:
    """Read the rows of a table, which of them are in a subset, and the test rows.

    Raises:
        InputError: for a table without embeddings, a subset that is empty or of other keys, or labels or a test side
            that cannot be read.
    """
    if EMBEDDING not in table.schema.names:
        raise InputError(
            f"{table.path} has no column {EMBEDDING!r}, which models are trained on; score the images again without "
            "--no-embedding, or choose your own column with --embedding"
        )
    label, seed, group = options.label, options.seed, several(options.group)
    columns = tuple(dict.fromkeys([*group, *([test.column] if test.column else [])]))
    rows = read_rows(table, Needs(names=columns, representations=EMBEDDINGS), by_hash=True)
    kept, in_subset = kept_rows(str(options.subset), table, rows)
    names = _labels(table, label, open_labelled(options.labelled), rows)
    part, left_out = _usable(rows, names)
    classes = sorted({name for name in names[part].tolist() if name is not None}) if names is not None else []
    codes, tested = _codes(names, part, classes), np.zeros(len(part), bool)
    if label is not None and test.column:
        tested = _equal(rows.names[test.column], test)[part]
    elif label is not None and test.share:
        tested = _held_out(codes, rows.hashes[part], test.share, seed)
    limit = options.sample or min(MOST_ROWS, max(LEAST_ROWS, MOST_CELLS // max(len(classes), 1)))
    looked_at = _sampled_positions(tested, rows.hashes[part], limit, seed)
    share = float((~tested[looked_at]).sum() / max((~tested).sum(), 1))
    part, tested = part[looked_at], tested[looked_at]
    pool = SubsetPool(
        [table],
        np.zeros(len(part), np.int8),
        rows.place[part],
        _vectors(rows, part),
        codes[looked_at],
        classes,
        np.bincount(codes[codes >= 0], minlength=len(classes)),
        kept[part],
        tested,
        left_out,
        share,
        table.n_rows,
        in_subset,
        {name: (replace(rows.names[name], codes=rows.names[name].codes[rows.ok]), kept[rows.ok]) for name in group},
    )
    if test.table is not None and label is not None:
        pool = _with_tests(pool, test.table, label, table.embedding_column, seed)
    return pool


def _labels(table: Table, label: str | None, labelled: LabelledFile | None, rows: Rows) -> NDArray[np.object_] | None:
    """Return the class of each row as text in row order, None without one."""
    if label is None:
        return None
    codes, names = class_names(named_column(table, label, "--label", labelled), label)
    return np.array([*names, None], object)[codes][rows.place]


def _usable(rows: Rows, names: NDArray[np.object_] | None) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Return the usable rows, ascending, and the number of others by reason."""
    fine = rows.embedding_problem == 0
    known = np.ones(len(rows), bool) if names is None else np.array([name is not None for name in names], bool)
    counts = {
        NOT_OK: int((~rows.ok).sum()),
        NO_LABEL: int((rows.ok & ~known).sum()),
        NO_EMBEDDING: int((rows.ok & known & ~fine).sum()),
    }
    return np.flatnonzero(rows.ok & known & fine), {why: n for why, n in counts.items() if n}


def _sampled_positions(
    tested: NDArray[np.bool_], hashes: NDArray[np.uint64], limit: int, seed: int
) -> NDArray[np.int64]:
    """Return the positions of the sampled rows, ascending: those with the lowest hashes, of test and other rows."""
    places = []
    for side, most in ((np.flatnonzero(~tested), limit), (np.flatnonzero(tested), MOST_TESTED)):
        order = np.argsort(redrawn(hashes[side], seed, "sample of a subset"), kind="stable")
        places.append(side[order[:most]])
    return np.sort(np.concatenate(places))


def _vectors(rows: Rows, part: NDArray[np.int64]) -> NDArray[np.float32]:
    return unit(rows_of(rows.array(EMBEDDING), part))


def _codes(names: NDArray[np.object_] | None, part: NDArray[np.int64], classes: list[str]) -> NDArray[np.int64]:
    """Return the index of the class of each row of a part; -1 if it is not among ``classes``."""
    if names is None:
        return np.full(len(part), -1, np.int64)
    place = {name: number for number, name in enumerate(classes)}
    return np.array([place.get(name, -1) for name in names[part]], np.int64)


def _equal(codes: Codes, test: TestSide) -> NDArray[np.bool_]:
    """Return where a column has the value of the test rows, shape (N,)."""
    if test.value not in codes.names:
        some = listed(map(repr, codes.names), 5)
        raise InputError(f"--test: expected {test.value!r} in column {test.column!r}, got {some}; choose one of these")
    return np.asarray(codes.codes == codes.names.index(test.value))


def _held_out(label: NDArray[np.int64], hashes: NDArray[np.uint64], share: float, seed: int) -> NDArray[np.bool_]:
    """Return which rows are held out, shape (P,): of each class the share with the lowest hashes, never all.

    This does not depend on the subset, so dropped rows are tested too.
    """
    order = np.lexsort((redrawn(hashes, seed, "test side of a subset"), label))
    _, first, size = np.unique(label[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, size)
    taken = np.minimum(np.floor(size * share + 0.5), size - 1)
    is_held_out = np.zeros(len(label), bool)
    is_held_out[order[rank < np.repeat(taken, size)]] = True
    return is_held_out


def _sha256(table: Table, rows: NDArray[np.int64]) -> pa.Array:
    """Return digests of the bytes of some rows, M values, null if absent; only these are held, 64 bytes each."""
    kind = table.schema.field(SHA256).type if SHA256 in table.schema.names else pa.null()
    if not is_text(kind) and not is_bytes(kind):
        return pa.nulls(len(rows), pa.large_binary())
    column = plain(table.take(rows, [SHA256]).column(0).combine_chunks())
    return pc.if_else(has_value(column), column.cast(pa.large_binary()), pa.scalar(None, pa.large_binary()))


def _with_tests(pool: SubsetPool, path: Path, label: str, embedding: str | None, seed: int) -> SubsetPool:
    """Return the pool with the rows of another table as test rows."""
    other = open_table(path, require=[label], embedding=embedding)
    rows = read_rows(other, Needs(representations=EMBEDDINGS), by_hash=True)
    if rows.embedding is None or rows.embedding.shape[1] != pool.vectors.shape[1]:
        width = 0 if rows.embedding is None else rows.embedding.shape[1]
        raise InputError(
            f"--test: expected embeddings of {pool.vectors.shape[1]} numbers in {path}, as in {pool.tables[0].path}, "
            f"got {width}; score both with one model"
        )
    require_same_model(pool.tables[0], other, "--test")
    names = _labels(other, label, None, rows)
    part, left_out = _usable(rows, names)
    part = part[_sampled_positions(np.ones(len(part), bool), rows.hashes[part], 0, seed)]
    label_codes = _codes(names, part, pool.classes)
    known = label_codes >= 0
    if not known.any():
        examples = sorted({str(name) for name in names[part]})[:3] if names is not None else []
        raise InputError(
            f"--test: expected classes such as {pool.classes[0]!r} in column {label!r} of {path}, got "
            f"{', '.join(map(repr, examples)) or 'no labels'}; use the same class names in both tables"
        )
    left = {**pool.left_out, **{f"{why}, in {path.name}": n for why, n in left_out.items()}}
    if not known.all():
        left[f"of a class that the table lacks, in {path.name}"] = int((~known).sum())
    n = int(known.sum())
    return replace(
        pool,
        tables=[*pool.tables, other],
        source=np.concatenate([pool.source, np.ones(n, np.int8)]),
        row=np.concatenate([pool.row, rows.place[part][known]]),
        vectors=np.concatenate([pool.vectors, _vectors(rows, part[known])]),
        label=np.concatenate([pool.label, label_codes[known]]),
        kept=np.concatenate([pool.kept, np.zeros(n, bool)]),
        tested=np.concatenate([pool.tested, np.ones(n, bool)]),
        left_out=left,
    )
