"""The output files of every policy: subset, decisions, receipt and others, written atomically."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.columns import KEY, describe, describe_all
from curate.manifest.file_set import file_set
from curate.manifest.store_path import AnyPath, path_or_store, path_to_read
from curate.policies.decided import KEEP, OUTCOMES, Decided, Result, plain_words, tally
from curate.policies.receipts import FileState, Written, receipt_json, state_of
from curate.tables.classes import CLASSES, lists_for_subset
from curate.tables.table import Table
from curate.tables.writer import ROW_GROUP_ROWS, TableWriter
from scoring.atomic import AtomicFile
from scoring.errors import InputError
from scoring.file_digest import file_sha256

SUFFIX = ".parquet"
STREAM_ROWS = ROW_GROUP_ROWS  # few rows of all columns at once keep the memory low


@dataclass(frozen=True)
class Files:
    """The files of a policy other than its table, subset, decisions and receipt.

    Attributes:
        tables: other input tables.
        read: option -> input file, which must not be overwritten.
        quoted: (option, file) whose content is stored in the receipt: they must not be overwritten, but may change
            later.
        more: further output tables, such as ``groups``: ``NAME.groups.parquet``.
        texts: further output files, with their suffixes, such as ``audit.csv``: ``NAME.audit.csv``.
    """

    tables: tuple[Table, ...] = ()
    read: Mapping[str, str | Path] = field(default_factory=dict)
    quoted: tuple[tuple[str, str], ...] = ()
    more: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)


class Outputs:
    """The output names that belong together: ``NAME.parquet`` and the files next to it.

    Args:
        subset: a path ending in ``.parquet``, on a disk or in a store.
        files: further files of the policy.
        overwrite: replace existing files.

    Raises:
        InputError: for a name with another ending.
    """

    def __init__(self, subset: str | AnyPath, files: Files, *, overwrite: bool = False) -> None:
        self.subset, self.files, self.overwrite = path_or_store(subset), files, overwrite
        if self.subset.suffix != SUFFIX or self.subset.name == SUFFIX:
            raise InputError(f"the subset is a Parquet file: expected a name like kept{SUFFIX}, got {self.subset}")
        stem = self.subset.name.removesuffix(SUFFIX)
        beside = {name: self.subset.with_name(f"{stem}.{name}{SUFFIX}") for name in ("decisions", *files.more)}
        self.tables = {"subset": self.subset, **beside}
        self.texts = {name: self.subset.with_name(f"{stem}.{ending}") for name, ending in files.texts.items()}
        self.receipt = self.subset.with_name(f"{stem}.receipt.json")
        self.together = file_set(list(self.paths.values()), overwrite=overwrite)

    @property
    def paths(self) -> dict[str, AnyPath]:
        """All files by name; the receipt last."""
        return {**self.tables, **self.texts, "receipt": self.receipt}

    def table(self, name: str, schema: pa.Schema, metadata: dict[str, Any]) -> TableWriter:
        """Return the writer of an output table."""
        return TableWriter(self.together.draft(self.tables[name]), schema, metadata, overwrite=self.overwrite)

    def text(self, path: AnyPath) -> AtomicFile:
        """Return another output file, before it is renamed."""
        return AtomicFile(self.together.draft(path), overwrite=self.overwrite)

    def refuse(self, table: Table) -> None:
        """Refuse to overwrite inputs, or to write next to a table that could be mistaken for an output of this run."""
        files = self.files
        for each in (table, *files.tables):
            taken = {file.resolve() for file in each.files}
            for path in self.paths.values():
                if path.resolve() in taken or (path.resolve().parent == each.path.resolve() and each.path.is_dir()):
                    what = f"part of {each.path}" if each.path.is_dir() else "an input"
                    raise InputError(f"{path} is {what}, which is never overwritten; choose another name")
        written = {path.resolve() for path in self.paths.values()}
        folders = {path.parent for path in written}
        for flag, name in (*files.read.items(), *files.quoted):
            place = path_to_read(name).resolve()
            if place in written or ((flag, name) in files.quoted and place in folders):
                raise InputError(f"{name} is read by {flag} and would be overwritten; choose another name with -o")


@contextmanager
def outputs_for(table: Table, out: str | AnyPath | None, files: Files, *, overwrite: bool) -> Iterator[Outputs]:
    """Yield the outputs of a policy, checked before any work, and locked if they are in a store.

    Raises:
        InputError: for a missing or invalid name, an input's name, or one that exists and may not be replaced.
    """
    if out is None:
        raise InputError("expected a name for the subset (-o kept.parquet), got none; or use --dry-run")
    outputs = Outputs(out, files, overwrite=overwrite)
    outputs.refuse(table)
    with outputs.together:
        yield outputs


def write_outputs(
    decided: Decided[Result],
    outputs: Outputs,
    facts: Mapping[str, Any],
    states: Sequence[tuple[Table, list[FileState]]],
) -> frozenset[str]:
    """Stream all columns, write every table, check the counts, then rename all files together.

    Args:
        decided: the decisions.
        outputs: their names.
        facts: of the receipt, in addition to the counts.
        states: of the files of every input table, before it was read.

    Returns:
        The names of the files that were written; some may be omitted.

    Raises:
        InputError: if an input changed since it was read, or a file cannot be written; nothing is renamed then.
    """
    described = {"kind": "decisions", "policy": decided.policy, "columns": _described(decided.meanings)}
    writers: dict[str, TableWriter] = {}
    others: dict[str, AtomicFile] = {}

    def writer(name: str, schema: pa.Schema, metadata: dict[str, Any]) -> TableWriter:
        writers[name] = outputs.table(name, schema, metadata)
        return writers[name]

    try:
        subset = writer("subset", *_subset(decided))
        decisions = writer("decisions", decided.schema, described)
        for name, rows in decided.more.items():
            described_columns = _described(decided.more_meanings.get(name, {}))
            writer(name, rows.schema, {"kind": name, "policy": decided.policy, "columns": described_columns}).write(
                rows
            )
        for name, content in (decided.texts(outputs.texts) if decided.texts else {}).items():
            others[name] = outputs.text(outputs.texts[name])
            others[name].write(content)
        receipt = others["receipt"] = outputs.text(outputs.receipt)
        counts = _stream(decided, subset, decisions)
        read = bytes_read(outputs.files)
        if changed := [table.path for table, before in states if state_of(table) != before]:
            raise InputError(f"{changed[0]} changed while it was being read; run the command again")
        _check(decided, counts, subset.n_rows, decisions.n_rows)
        for written in writers.values():
            written.seal()
        made: dict[str, Written] = {name: (writer.file, writer.n_rows) for name, writer in writers.items()}
        for name in (name for name in outputs.texts if name in others):
            others[name].seal()
            made[name] = others[name], None
        receipt.write(receipt_json(decided, facts, made, read))
        outputs.together.commit([*(writer.file for writer in writers.values()), *others.values()])
        return frozenset({*writers, *others})
    finally:
        drafts: list[TableWriter | AtomicFile] = [*writers.values(), *others.values()]
        for draft in drafts:
            draft.discard()
        if decided.arranged is not None:
            decided.arranged.close()


def bytes_read(files: Files) -> dict[str, str]:
    """Return path -> SHA-256 of every local file that was read in addition to the table."""
    paths = [*(file for each in files.tables for file in each.files), *map(path_to_read, files.read.values())]
    local = sorted(path.resolve() for path in paths if isinstance(path, Path) and path.is_file())
    return {str(path): file_sha256(path) for path in local}


def _subset(decided: Decided[Result]) -> tuple[pa.Schema, dict[str, Any]]:
    """Return the schema of the subset, and its metadata."""
    table, arranged = decided.table.stored, decided.arranged
    lists = lists_for_subset(table)  # of all classes, even without rows in the subset
    lists |= {name: lists[column] for name, column in decided.same_classes.items() if column in lists}
    earlier = table.metadata.get("policy")
    metadata = {
        **table.metadata,
        CLASSES: {name: list(names) for name, names in lists.items()},
        "kind": "subset",
        "policy": (earlier if isinstance(earlier, list) else []) + decided.policy,
    }
    if arranged is None:
        return table.schema.with_metadata(table.file_metadata), metadata
    described = describe_all(arranged.schema.names) | table.noted("columns")
    metadata["columns"] = {**described, **_described(arranged.meanings)}
    return arranged.schema.with_metadata(table.file_metadata), metadata


def _described(meanings: Mapping[str, str]) -> dict[str, dict[str, str]]:
    key = {KEY: {"meaning": describe(KEY).meaning, "unit": "", "higher": ""}}
    return key | {name: {"meaning": text, "unit": "", "higher": ""} for name, text in meanings.items()}


def _stream(decided: Decided[Result], subset: TableWriter, decisions: TableWriter) -> np.ndarray:
    """Write kept rows and all decisions; return the number of rows of each outcome."""
    counts = np.zeros(len(OUTCOMES), np.int64)
    stored = decided.table.stored
    for start, batch in stored.numbered(rows=STREAM_ROWS, compact=True):
        outcome = decided.outcome[start : start + batch.num_rows]
        if len(outcome) != batch.num_rows:
            raise InputError(f"{decided.table.path} changed while it was being read; run the command again")
        counts += tally(outcome)
        decisions.write(decided.words(start, *plain_words(batch)))
        kept = batch.filter(pa.array(outcome == KEEP))
        kinds = zip(kept.columns, stored.schema.types, strict=True)
        plain = [each if each.type == kind else each.cast(kind) for each, kind in kinds]  # text without dictionaries
        kept = pa.RecordBatch.from_arrays(plain, schema=stored.schema)
        if kept.num_rows and decided.arranged is not None:
            for piece in decided.arranged.add(kept):
                subset.write(piece)
        elif kept.num_rows:
            subset.write(kept)
    for piece in decided.arranged.finish() if decided.arranged is not None else ():
        subset.write(piece)
    return counts


def _check(decided: Decided[Result], counts: np.ndarray, n_subset: int, n_decisions: int) -> None:
    """Raise an error unless the counts add up, before any file is renamed."""
    n_rows, *expected = decided.counts().values()
    if counts.tolist() != expected or sum(expected) != n_rows or n_decisions != n_rows or n_subset != expected[0]:
        raise RuntimeError(f"rows do not add up: {counts.tolist()} written, {expected} decided of {n_rows}")
