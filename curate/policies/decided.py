"""The possible outcomes of a row, the decisions of a policy on all rows before they are written, and its result."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from curate.columns import ERROR, GONE, KEY, LABEL, STATUS
from curate.counted import Grid, Printed
from curate.manifest.store_path import AnyPath
from curate.policies.findings import Difference, Finding
from curate.tables.digests import is_text, plain
from curate.tables.needs import is_plain
from curate.tables.table import Table
from scoring.relative.columns import CLUSTER

KEEP, DROP, UNDECIDED, FAILED = range(4)
Row = tuple[pa.Array, pa.Array | None, pa.Array | None]  # keys (M,), status (M,) or None, error (M,) or None
OUTCOMES = ("keep", "drop", "undecided", "failed")  # by the codes above, as they are in the decisions


DECISION_SCHEMA = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False),
        pa.field("decision", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("rule", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("margin", pa.float64()),
    ]
)


def decision_rows(
    schema: pa.Schema, row: Row, outcome: np.ndarray, reason: np.ndarray, **columns: pa.Array
) -> pa.RecordBatch:
    """Return M rows of decisions.

    Args:
        schema: of the decisions; missing columns are null.
        row: key, status and error of each.
        outcome: codes of ``OUTCOMES``, shape (M,).
        reason: texts, shape (M,); replaced by the failure for rows that were not scored.
        columns: other columns of the decisions, by name.
    """
    keys, status, error = row
    failed = np.flatnonzero(outcome == FAILED)
    reason[failed] = failures(status, error, failed) or "not scored"
    known = {KEY: keys, "decision": pa.array(OUTCOMES).take(pa.array(outcome)), "reason": pa.array(reason, pa.string())}
    known |= columns
    arrays = [known[each.name] if each.name in known else pa.nulls(len(keys), each.type) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def failures(status: pa.Array | None, error: pa.Array | None, rows: np.ndarray) -> list[str]:
    """Return the status and the error of rows that were not scored, as reasons."""
    if status is None or not len(rows):
        return []
    at = pa.array(rows)
    kinds = status.take(at).to_pylist()
    texts = error.take(at).to_pylist() if error is not None else [None] * len(rows)
    return [
        f"not scored: {'no status' if kind is None else kind}" + (f" ({text})" if text else "")
        for kind, text in zip(kinds, texts, strict=True)
    ]


@dataclass(frozen=True)
class Result(Printed):
    """The result of a policy, as its command prints it.

    Attributes:
        n_rows: input rows: kept + dropped + undecided + failed.
        kept: rows of the subset.
        dropped_by: rule as typed, or reason -> dropped rows.
        undecided_by: rule as typed, or missing value -> undecided rows.
        failed_by: status -> rows.
        notes: notes for the user, a class per kind; sentences if read from a receipt.
        examples: a few decisions: ``why`` (such as ``worst``), ``key`` and ``reason``.
        classes: class -> input rows, kept rows, by the column ``label``; without it, by cluster.
        classes_of: ``class``, ``cluster``, or the name of another column.
        input_digest: of the rows read, independent of their order.
        subset: written path; None in a dry run, as ``decisions`` and ``receipt``.
    """

    n_rows: int = 0
    kept: int = 0
    dropped: int = 0
    undecided: int = 0
    failed: int = 0
    dropped_by: dict[str, int] = field(default_factory=dict)
    undecided_by: dict[str, int] = field(default_factory=dict)
    failed_by: dict[str, int] = field(default_factory=dict)
    notes: list[Any] = field(default_factory=list)
    examples: list[dict[str, str]] = field(default_factory=list)
    classes: dict[str, tuple[int, int]] = field(default_factory=dict)
    classes_of: str = "class"
    input_digest: str = ""
    subset: AnyPath | None = None
    decisions: AnyPath | None = None
    receipt: AnyPath | None = None

    FILES: ClassVar[tuple[str, ...]] = ("subset", "decisions", "receipt")
    IN_RECEIPT: ClassVar[tuple[str, ...]] = ()  # additional fields of a policy in the receipt

    def paths(self) -> dict[str, AnyPath | None]:
        """Return the written files by name; None if not written."""
        return {name: getattr(self, name) for name in self.FILES}

    def account(self, undecided: Callable[[str], str] = str) -> list[tuple[str, int, str]]:
        """Return the outcomes of all rows, as rows of a table: outcome, number and reason.

        Args:
            undecided: turns a reason for undecided rows into its text.
        """
        rows = [("rows in", self.n_rows, ""), ("kept", self.kept, "")]
        rows += [("dropped", n, why) for why, n in self.dropped_by.items()]
        rows += [("undecided", n, undecided(why)) for why, n in self.undecided_by.items()]
        return [*rows, *(("failed", n, status) for status, n in self.failed_by.items())]

    def lines(self) -> list[str | Grid]:
        """Return the account of all rows, and the written files, as lines for the terminal."""
        files = [f"{name}: {path}" for name, path in self.paths().items() if path is not None]
        return [Grid(self.account(), right=1), *files]

    def facts(self) -> dict[str, Any]:
        """Return the facts for the receipt in addition to the counts, as plain JSON."""
        names = ("dropped_by", "undecided_by", "failed_by", *self.IN_RECEIPT)
        return {name: getattr(self, name) for name in names}

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        paths = {name: str(path) if path else None for name, path in self.paths().items()}
        notes = [asdict(note) if is_dataclass(note) and not isinstance(note, type) else note for note in self.notes]
        return {**self.__dict__, **paths, "notes": notes}


N_EXAMPLES = 5
FIRST_DROPPED = "goes"
R = TypeVar("R", bound=Result, covariant=True)

# start row, keys (M,), status (M,) or None, error (M,) or None -> M rows of the decisions
Words = Callable[[int, pa.Array, pa.Array | None, pa.Array | None], pa.RecordBatch]
Differ = Callable[[Difference], None]
Problem = Callable[[Finding], None]
# subset as written, reported of each row that differs, reported of what differs and is no row
Compare = Callable[[Table, Differ, Problem], None]


class Arranged(Protocol):
    """A writer of a subset with other columns, or another order, than the table.

    Attributes:
        schema: of the subset.
        meanings: of the columns that the table lacks.
    """

    schema: pa.Schema
    meanings: Mapping[str, str]

    def add(self, kept: pa.RecordBatch) -> list[pa.Table]:
        """Add the next kept rows, in the order of the table; return the parts that can be written already."""

    def finish(self) -> Iterator[pa.Table]:
        """Yield the other parts, after all kept rows were added."""

    def close(self) -> None:
        """Release temporary files and memory, also without `finish`."""


@dataclass(frozen=True)
class Decided(Generic[R]):
    """The decisions of a policy on every row, not yet written.

    Attributes:
        table: the input.
        policy: parameters as plain JSON, one entry per rule, for receipt and metadata. Files are recorded by ``path``
            and ``digest``.
        outcome: shape (N,), codes of ``curate.policies.decided``.
        hashes: of the keys, shape (N,) uint64, in the order of the table.
        digest: of the rows read, independent of their order.
        words: writes the decisions of a slice of rows.
        schema: of the decisions.
        meanings: of the columns of the decisions.
        result: the result without counts.
        examples: reason -> rows to show as examples; by default the first dropped rows.
        more: further tables to write, by name.
        more_meanings: of the columns of these tables.
        texts: returns the content of further files by name, from their final paths; None for none.
        arranged: writer of the kept rows; None to write them unchanged.
        compare: compares an arranged subset with a repeated decision; None if rows are unchanged.
        same_classes: added column -> column of the table with the same classes.
        grouped_by: the column of the groups in the report; None for ``label``, else ``cluster``.
    """

    table: Table
    policy: list[dict[str, Any]]
    outcome: np.ndarray
    hashes: np.ndarray
    digest: str
    words: Words
    schema: pa.Schema
    meanings: Mapping[str, str]
    result: R
    examples: Mapping[str, np.ndarray] = field(default_factory=dict)
    more: Mapping[str, pa.Table] = field(default_factory=dict)
    more_meanings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    texts: Callable[[Mapping[str, AnyPath]], Mapping[str, bytes]] | None = None
    arranged: Arranged | None = None
    compare: Compare | None = None
    same_classes: Mapping[str, str] = field(default_factory=dict)
    grouped_by: str | None = None

    def counts(self) -> dict[str, int]:
        """Return ``n_rows`` and the rows of each outcome."""
        kept, dropped, undecided, failed = tally(self.outcome)
        return {"n_rows": len(self.outcome), "kept": kept, "dropped": dropped, "undecided": undecided, "failed": failed}


def tally(outcome: np.ndarray) -> list[int]:
    """Return the number of rows of each outcome; counted per code, since bincount needs eight bytes per row."""
    return [int(np.count_nonzero(outcome == code)) for code in range(len(OUTCOMES))]


def counted_result(decided: Decided[R]) -> R:
    """Return the result with its counts, some example decisions, and failures."""
    outcome = decided.outcome
    chosen = decided.examples or {FIRST_DROPPED: _first((outcome == DROP) | (outcome == UNDECIDED), N_EXAMPLES)}
    shown = np.unique(np.concatenate(list(chosen.values()))).astype(np.int64)
    seen = dict(zip(shown.tolist(), _decisions(decided, shown), strict=True))
    examples = [
        {"why": why, "key": seen[row]["key"], "reason": seen[row]["reason"]}
        for why, rows in chosen.items()
        for row in rows.tolist()
    ]
    table, failed, failed_by = decided.table, outcome == FAILED, {}
    if failed.any() and STATUS in table.schema.names and is_text(table.schema.field(STATUS).type):
        failed_by = {str(kind): n for kind, _, n in _counts(table, STATUS, failed).iter_rows() if n}
    known: dict[str, Any] = {**decided.counts(), "failed_by": failed_by}
    return replace(decided.result, **known, examples=examples)


def _decisions(decided: Decided[Result], rows: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield the decisions of M ascending rows, reading only their row groups."""
    if not len(rows):
        return
    names = [name for name in (KEY, STATUS, ERROR) if name in decided.table.schema.names]
    words = plain_words(decided.table.take(rows, names).combine_chunks().to_batches()[0])
    for at, row in enumerate(rows.tolist()):
        key, status, error = (None if column is None else column.slice(at, 1) for column in words)
        yield decided.words(row, key, status, error).to_pylist()[0]


def _counts(table: Table, column: str, inside: np.ndarray) -> pl.DataFrame:
    """Return each value of a column as text, its rows, and the number of rows in the mask ``inside``, shape (N,)."""
    n_rows = {"n": pl.len().cast(pl.Int64), "inside": pl.col("inside").sum().cast(pl.Int64)}
    counts = [pl.DataFrame(schema={"value": pl.String, "n": pl.Int64, "inside": pl.Int64})]
    for start, batch in table.numbered([column], compact=True):
        rows = pl.DataFrame({"value": pl.Series(batch.column(0)), "inside": inside[start : start + batch.num_rows]})
        of_values = rows.group_by("value", maintain_order=True).agg(**n_rows)
        text = pl.Series(plain(of_values["value"].to_arrow()).cast(pa.string()))
        counts.append(of_values.with_columns(value=text))
    return pl.concat(counts).group_by("value", maintain_order=True).agg(pl.all().sum())


def _first(mask: np.ndarray, n: int) -> np.ndarray:
    """Return the indices of the first n true values of a mask (N,)."""
    block = 1 << 20
    parts: list[np.ndarray] = [np.zeros(0, np.int64)]
    for start in range(0, len(mask), block):
        parts.append(start + np.flatnonzero(mask[start : start + block])[:n])
        if sum(map(len, parts)) >= n:
            break
    return np.concatenate(parts)[:n]


def kept_by_class(decided: Decided[Result]) -> tuple[str, dict[str, tuple[int, int]]]:
    """Return the column of groups, and the input and kept rows of each group, largest first.

    Images that are gone from the source are not counted, since no policy dropped them.
    Groups are the values of the column that the policy names, else of ``label``, else of ``cluster``; {} without any.
    """
    table = decided.table
    names = [name for name in (decided.grouped_by, LABEL, CLUSTER) if name and name in table.schema.names]
    column = next((name for name in names if is_plain(table.schema.field(name).type)), None)
    if column is None:
        return "class", {}
    counts = _counts(table, column, decided.outcome == KEEP)
    gone = decided.outcome == FAILED
    if gone.any():
        status = [batch.column(0).cast(pa.string()) for batch in table.batches([STATUS])]
        gone &= (pl.Series(pa.chunked_array(status)) == GONE).fill_null(value=False).to_numpy()
    if gone.any():
        counts = counts.with_columns(pl.col("n") - _counts(table, column, gone)["inside"]).filter(pl.col("n") > 0)
    counts = counts.drop_nulls("value")
    kind = {LABEL: "class", CLUSTER: "cluster"}.get(column, column)
    largest = counts.sort("n", descending=True, maintain_order=True)
    return kind, {name: (n, kept) for name, n, kept in largest.iter_rows()}


def plain_words(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array | None, pa.Array | None]:
    """Return key (as plain text), status and error of a batch; None for a column that is missing or not text."""
    texts = {field.name: batch.column(field.name) for field in batch.schema if is_text(field.type)}
    return plain(batch.column(KEY)).cast(pa.string()), texts.get(STATUS), texts.get(ERROR)


TWICE = 2.0  # loss relative to the average from which a group is reported
LEAST_ROWS = 10  # minimal rows of a group, since small ones may lose much at random
MOST_NAMED = 3


def uneven_words(kind: str, groups: Mapping[str, tuple[int, int]], usual: float) -> list[str]:
    """Return a sentence for each group that loses more than twice the average share, worst first.

    Classes that lose all their rows are in the first sentence.

    Args:
        kind: kind of the groups: ``class``, ``cluster`` or the name of a column.
        groups: name -> number of rows, number of dropped rows.
        usual: dropped share of all rows, in [0, 1].

    >>> uneven_words("class", {"cat": (10, 9), "dog": (90, 21), "eel": (1, 1)}, 0.31)
    ['no row is left of class eel', 'class cat loses 90%, all together 31%']
    """
    is_class = kind != "cluster" and TWICE * usual < 1
    emptied = dict.fromkeys(name for name, (rows, gone) in groups.items() if is_class and 0 < rows == gone)
    lost = {name: gone / rows for name, (rows, gone) in groups.items() if rows >= LEAST_ROWS and name not in emptied}
    worst = sorted((name for name in lost if lost[name] > TWICE * usual), key=lambda name: -lost[name])
    lines = [f"{kind} {name} loses {lost[name]:.0%}, all together {usual:.0%}" for name in worst[:MOST_NAMED]]
    return [*emptied_words(kind, [*emptied]), *lines]


def emptied_words(kind: str, names: Sequence[str]) -> list[str]:
    """Return the sentence that names classes without a kept row; empty if there are none.

    >>> emptied_words("class", ["ant", "bee", "cat", "dog"])
    ['no row is left of class ant, bee, cat and 1 more']
    """
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return [f"no row is left of {kind} {', '.join(names[:MOST_NAMED])}{more}"] if names else []


def uneven_notes(result: Result) -> list[str]:
    """Return notes on classes, or clusters without classes, that lose a much larger share than all rows."""
    rows = sum(rows for rows, _ in result.classes.values())
    lost = {name: (rows, rows - kept) for name, (rows, kept) in result.classes.items()}
    return uneven_words(result.classes_of, lost, sum(gone for _, gone in lost.values()) / max(rows, 1))
