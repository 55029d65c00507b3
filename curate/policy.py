"""What every policy leaves behind: subset, decisions, receipt and more, all at once or not at all."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from curate.columns import ERROR, KEY, STATUS, describe, describe_all
from curate.digests import is_text, plain
from curate.outcomes import DROP, FAILED, KEEP, UNDECIDED
from curate.receipts import receipt_json, state_of
from curate.table import Table, TableWriter
from scoring.atomic import AtomicFile, commit_together
from scoring.errors import InputError

SUFFIX = ".parquet"
N_EXAMPLES = 5
STREAM_ROWS = 16_384  # all columns at once: few rows keep the memory low

# start row, keys (M,), status (M,) or None, error (M,) or None -> M rows of the decisions
Words = Callable[[int, pa.Array, pa.Array | None, pa.Array | None], pa.RecordBatch]


class Arranged(Protocol):
    """Kept rows that become a subset with other columns, or in another order, than the table's.

    Attributes:
        schema: of the subset.
        meanings: of the columns that the table has not.
    """

    schema: pa.Schema
    meanings: Mapping[str, str]

    def add(self, kept: pa.RecordBatch) -> None:
        """Take the next kept rows, in the order of the table."""

    def finish(self) -> Iterator[pa.Table]:
        """Yield the subset, once all kept rows are there."""


class Outputs:
    """The names that belong together: ``NAME.parquet`` and what stands beside it.

    Args:
        subset: ends in ``.parquet``.
        more: further tables, such as ``groups``: ``NAME.groups.parquet``.
        texts: further files that are no tables, such as ``audit.csv``: ``NAME.audit.csv``.

    Raises:
        InputError: for a name with another ending.
    """

    def __init__(self, subset: str | Path, more: tuple[str, ...] = (), texts: tuple[str, ...] = ()) -> None:
        self.subset = Path(subset)
        if self.subset.suffix != SUFFIX or self.subset.name == SUFFIX:
            raise InputError(f"the subset is a Parquet file: expected a name like kept{SUFFIX}, got {self.subset}")
        stem = self.subset.name.removesuffix(SUFFIX)
        self.tables = {
            "subset": self.subset,
            **{name: self.subset.with_name(f"{stem}.{name}{SUFFIX}") for name in ("decisions", *more)},
        }
        self.texts = {name: self.subset.with_name(f"{stem}.{name}") for name in texts}
        self.receipt = self.subset.with_name(f"{stem}.receipt.json")

    @property
    def paths(self) -> dict[str, Path]:
        """All files by name."""
        return {**self.tables, **self.texts, "receipt": self.receipt}

    def refuse(self, inputs: list[Table], *, overwrite: bool) -> None:
        """Refuse to write over an input, over a file that is there unless ``overwrite``, or into no folder."""
        for table in inputs:
            taken = {file.resolve() for file in table.files}
            for path in self.paths.values():
                if path.resolve() in taken or (table.path.is_dir() and path.resolve().parent == table.path.resolve()):
                    raise InputError(f"{path} is part of {table.path}, which is never changed; choose another name")
        for path in self.paths.values():
            if path.exists() and not overwrite:
                raise InputError(f"{path} exists already; choose another name, or replace it with --overwrite")
        if not self.subset.parent.is_dir():
            what = (
                "is not a folder; choose another" if self.subset.parent.exists() else "does not exist; create it first"
            )
            raise InputError(f"cannot write {self.subset}: the folder {what}")


def outputs_for(
    inputs: list[Table],
    out: str | Path | None,
    more: tuple[str, ...] = (),
    texts: tuple[str, ...] = (),
    *,
    overwrite: bool,
) -> Outputs:
    """Return the outputs of a policy, checked before any work is done.

    Raises:
        InputError: without a name, for a name that cannot be, an input's, or one that exists and may not be replaced.
    """
    if out is None:
        raise InputError("expected a name for the subset (-o kept.parquet), got none; or use --dry-run")
    outputs = Outputs(out, more, texts)
    outputs.refuse(inputs, overwrite=overwrite)
    return outputs


@dataclass(frozen=True)
class Decided:
    """A policy that has been decided for every row, and not yet written.

    Attributes:
        table: the input.
        policy: parameters as plain JSON, one entry a rule; goes into receipt and metadata.
        outcome: shape (N,), codes of ``curate.outcomes``.
        words: makes the decisions of a slice.
        schema: of the decisions.
        meanings: of the columns of the decisions.
        digest: of the input.
        state: of the input's files when they were read.
        facts: what else the receipt says, such as counts by rule.
        more: further tables to write, by name.
        more_meanings: of their columns, by name of the table.
        arranged: what becomes of kept rows; None to write them as they are.
    """

    table: Table
    policy: list[dict[str, Any]]
    outcome: np.ndarray
    words: Words
    schema: pa.Schema
    meanings: Mapping[str, str]
    digest: str
    state: list[tuple[str, int, int]]
    facts: dict[str, Any] = field(default_factory=dict)
    more: dict[str, pa.Table] = field(default_factory=dict)
    more_meanings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    arranged: Arranged | None = None

    def counts(self) -> dict[str, int]:
        """Return ``n_rows`` and the rows of each outcome."""
        kept, dropped, undecided, failed = np.bincount(self.outcome, minlength=4).tolist()
        return {
            "n_rows": len(self.outcome),
            "kept": kept,
            "dropped": dropped,
            "undecided": undecided,
            "failed": failed,
        }


def second_look(decided: Decided) -> tuple[list[dict[str, str]], dict[str, int]]:
    """Return a few decisions of rows that go (key and reason), and failures by status.

    Reads no further than it must for both.
    """
    table, outcome = decided.table, decided.outcome
    gone = np.flatnonzero((outcome == DROP) | (outcome == UNDECIDED))[:N_EXAMPLES]
    failed = np.flatnonzero(outcome == FAILED)
    examples: list[dict[str, str]] = []
    failed_by: dict[str, int] = {}
    last = max(int(gone[-1]) if len(gone) else -1, int(failed[-1]) if len(failed) else -1)
    if last < 0:
        return examples, failed_by
    names = [name for name in (KEY, STATUS, ERROR) if name in table.schema.names]
    for start, batch in numbered(table.batches(names)):
        keys, status, error = _plain_words(batch)
        here = slice(start, start + len(keys))
        if status is not None:
            for kind in status.filter(pa.array(outcome[here] == FAILED)).to_pylist():
                failed_by[str(kind)] = failed_by.get(str(kind), 0) + 1
        rows = gone[(gone >= start) & (gone < start + len(keys))] - start
        if len(rows):
            told = decided.words(start, keys, status, error).take(pa.array(rows))
            examples += [{"key": row["key"], "reason": row["reason"]} for row in told.to_pylist()]
        if start + len(keys) > last:
            break
    return examples, failed_by


def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield each batch with the number of its first row."""
    start = 0
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def _plain_words(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array | None, pa.Array | None]:
    """Key, status and error of a batch as plain text; None for a column that is not there or not text."""
    key = plain(batch.column(KEY)).cast(pa.string())
    extra = []
    for name in (STATUS, ERROR):
        column = batch.column(name) if name in batch.schema.names else None
        extra.append(plain(column).cast(pa.string()) if column is not None and is_text(column.type) else None)
    return key, extra[0], extra[1]


def write_outputs(
    decided: Decided, outputs: Outputs, *, overwrite: bool, texts: Mapping[str, bytes] | None = None
) -> None:
    """Stream all columns, write every table, check the sums, then give the files their names together.

    Args:
        decided: what to write.
        outputs: under which names.
        overwrite: replace what is there.
        texts: content of each of ``outputs.texts``.

    Raises:
        InputError: if the input changed since it was read, or the place refuses; nothing has a name then.
    """
    table = decided.table
    described = {"kind": "decisions", "policy": decided.policy, "columns": _told(decided.meanings)}
    writers: dict[str, TableWriter] = {}
    others: list[AtomicFile] = []

    def writer(name: str, schema: pa.Schema, metadata: dict[str, Any]) -> TableWriter:
        writers[name] = TableWriter(outputs.tables[name], schema, metadata, overwrite=overwrite)
        return writers[name]

    try:
        subset = writer("subset", *_subset(decided))
        decisions = writer("decisions", decided.schema, described)
        for name, rows in decided.more.items():
            told = _told(decided.more_meanings.get(name, {}))
            writer(name, rows.schema, {"kind": name, "policy": decided.policy, "columns": told}).write(rows)
        for name, content in (texts or {}).items():
            others.append(AtomicFile(outputs.texts[name], overwrite=overwrite))
            others[-1].write(content)
        receipt = AtomicFile(outputs.receipt, overwrite=overwrite)
        others.append(receipt)
        tally = _stream(decided, subset, decisions)
        if state_of(table) != decided.state:
            raise InputError(f"{table.path} changed while it was being read; run the command again")
        _check(decided, tally, subset.n_rows, decisions.n_rows)
        for each in writers.values():
            each.seal()
        receipt.write(receipt_json(decided, writers))
        commit_together([*(each.file for each in writers.values()), *others])
    finally:
        for each in writers.values():
            each.discard()
        for other in others:
            other.discard()


def _subset(decided: Decided) -> tuple[pa.Schema, dict[str, Any]]:
    """The schema of the subset with the table's own metadata, and ours."""
    table, arranged = decided.table, decided.arranged
    metadata = {**table.metadata, "kind": "subset", "policy": _earlier(table) + decided.policy}
    if arranged is None:
        return table.schema.with_metadata(table.file_metadata), metadata
    earlier = table.metadata.get("columns")
    described = {**describe_all(arranged.schema.names), **(earlier if isinstance(earlier, dict) else {})}
    metadata["columns"] = {**described, **_told(arranged.meanings)}
    return arranged.schema.with_metadata(table.file_metadata), metadata


def _earlier(table: Table) -> list[Any]:
    """The rules that the table has been through already."""
    policy = table.metadata.get("policy", [])
    return policy if isinstance(policy, list) else []


def _told(meanings: Mapping[str, str]) -> dict[str, dict[str, str]]:
    key = {KEY: {"meaning": describe(KEY).meaning, "unit": "", "higher": ""}}
    return key | {name: {"meaning": text, "unit": "", "higher": ""} for name, text in meanings.items()}


def _stream(decided: Decided, subset: TableWriter, decisions: TableWriter) -> np.ndarray:
    """Write kept rows and all decisions; return how many rows of each outcome were written as decisions."""
    tally = np.zeros(4, np.int64)
    for start, batch in numbered(decided.table.batches(rows=STREAM_ROWS)):
        outcome = decided.outcome[start : start + batch.num_rows]
        if len(outcome) != batch.num_rows:
            raise InputError(f"{decided.table.path} changed while it was being read; run the command again")
        tally += np.bincount(outcome, minlength=4)
        decisions.write(decided.words(start, *_plain_words(batch)))
        kept = batch.filter(pa.array(outcome == KEEP))
        if kept.num_rows and decided.arranged is not None:
            decided.arranged.add(kept)
        elif kept.num_rows:
            subset.write(kept)
    for piece in decided.arranged.finish() if decided.arranged is not None else ():
        subset.write(piece)
    return tally


def _check(decided: Decided, tally: np.ndarray, n_subset: int, n_decisions: int) -> None:
    """The accounts must balance before any file gets its name."""
    n_rows, *expected = decided.counts().values()
    if tally.tolist() != expected or sum(expected) != n_rows or n_decisions != n_rows or n_subset != expected[0]:
        raise RuntimeError(f"rows do not add up: {tally.tolist()} written, {expected} decided of {n_rows}")
