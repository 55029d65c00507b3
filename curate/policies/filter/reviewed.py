"""The rule by the verdicts of ``curate review``: drop what a reviewer dropped, keep what one kept, take new labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.counted import counted
from curate.policies.filter.ruling import Ruling
from curate.policies.verdicts import N_NAMED, SHORT, Verdicts, read_verdicts
from curate.tables.digests import tie_breaks
from curate.tables.needs import SHA256
from curate.tables.rows import Rows
from curate.tables.table import Table
from scoring.errors import InputError


@dataclass(frozen=True)
class Reviewed:
    """What the verdicts of a file say of N rows.

    Attributes:
        drop: shape (N,).
        keep: shape (N,): kept by a reviewer, and dropped by none.
        labels: column -> row -> new label.
        by: row -> who dropped it, and in which group.
        gone: keys that no row has.
        changed: keys whose image is another one now.
    """

    drop: NDArray[np.bool_]
    keep: NDArray[np.bool_]
    labels: Mapping[str, Mapping[int, str]]
    by: Mapping[int, str]
    gone: list[str]
    changed: list[str]

    def lines(self, path: str) -> list[str]:
        """Return what a reader has to know, one sentence a line."""
        n_labels = sum(map(len, self.labels.values()))
        relabelled = f", relabels {n_labels:,}" if n_labels else ""
        notes = [f"--verdicts {path}: drops {int(self.drop.sum()):,}, keeps {int(self.keep.sum()):,}{relabelled}"]
        for keys, what in ((self.gone, "that the table does not have"), (self.changed, "that changed since")):
            if keys:
                named = ", ".join(map(repr, keys[:N_NAMED]))
                notes.append(f"--verdicts {path}: {counted(len(keys), 'verdict')} on images {what}: {named}")
        return notes


@dataclass(frozen=True)
class ByVerdicts:
    """Drop the rows that reviewers dropped."""

    file: str
    lines: int | None = None  # of the file that count: it only grows
    note: str = ""
    column: str | None = field(default=None, init=False)
    per: str | None = field(default=None, init=False)
    name: ClassVar[str] = "verdicts"
    ranks: ClassVar[bool] = True

    @cached_property
    def read(self) -> Verdicts:
        """The lines of the file."""
        return read_verdicts(self.file, lines=self.lines)

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M rows in a row, of which those ``inside``, shape (M,), are still in."""
        found = self.reviewed(table_rows)
        return Ruling(~found.drop[rows], np.ones(len(inside), bool), None, found)

    def reviewed(self, table_rows: Rows) -> Reviewed:
        """Return what the verdicts say of the rows of a table; InputError where they are of another table."""
        return reviewed_rows(self.read, table_rows)

    def to_json(self) -> dict[str, Any]:
        """Return the rule for a receipt: the file by the digest of the lines that were read."""
        read = self.read
        return {
            "rule": self.name,
            "file": {"path": str(read.path.resolve()), "digest": read.digest},
            "lines": read.lines,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ByVerdicts":
        """Return the rule that ``to_json`` wrote; the file may be a path where it is now."""
        file, lines = value.get("file"), value.get("lines")
        path = file.get("path") if isinstance(file, Mapping) else file
        if not isinstance(path, str) or type(lines) is not int or lines < 0:
            raise InputError(f"expected file and lines in the rule {cls.name} of the receipt; take it from a copy")
        return cls(path, lines)


def check_verdicts(path: str | Path, table: Table) -> ByVerdicts:
    """Return the rule by a file as it is now, checked against the columns of a table.

    Raises:
        InputError: if it cannot be read, reviewers disagree, or it relabels a column that the table lacks.
    """
    read = read_verdicts(path)
    said = read.said()
    if not said:
        raise InputError(f"--verdicts {path} holds no verdict yet; decide some groups with curate review")
    table.require(sorted({column for one in said.values() for column in one.labels}))
    torn = f"--{ByVerdicts.name} {path}: its last line was cut off and is left out" if read.torn else ""
    return ByVerdicts(str(path), read.lines, torn)


def reviewed_rows(read: Verdicts, table_rows: Rows) -> Reviewed:
    """Return what verdicts say of N rows: by key, and where the table has it by the digest of the image.

    Raises:
        InputError: where no verdict is on an image of the table, or reviewers disagree.
    """
    said = read.said()
    keys = list(said)
    at = _places(tie_breaks([key.encode("utf-8", "surrogateescape") for key in keys]), table_rows.hashes)
    there = at >= 0
    same = there.copy()
    if SHA256 in table_rows.texts and there.any():
        digests = table_rows.texts[SHA256].take(pa.array(at[there])).to_pylist()
        for place, digest in zip(np.flatnonzero(there).tolist(), digests, strict=True):
            image = said[keys[place]].image
            same[place] = not image or not digest or digest[:SHORT] == image
    if keys and not same.any():
        raise InputError(
            f"--verdicts {read.path} is of another table: none of its {counted(len(keys), 'image')} is there, such as "
            f"{keys[0][:80]!r}; give the table that was reviewed"
        )
    n = len(table_rows)
    drop, keep, labels, by = np.zeros(n, bool), np.zeros(n, bool), {}, {}  # type: ignore[var-annotated]
    for place in np.flatnonzero(same).tolist():
        one, row = said[keys[place]], int(at[place])
        drop[row], keep[row] = one.drop, one.keep and not one.drop
        if one.drop:
            by[row] = one.by
        for column, label in one.labels.items():
            labels.setdefault(column, {})[row] = label
    gone = [keys[place] for place in np.flatnonzero(~there).tolist()]
    changed = [keys[place] for place in np.flatnonzero(there & ~same).tolist()]
    return Reviewed(drop, keep, labels, by, gone, changed)


def _places(wanted: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the row of each wanted hash among N, shape (M,); -1 where it is not."""
    order = np.argsort(wanted, kind="stable")
    places = np.full(len(wanted), -1, np.int64)
    for start in range(0, len(hashes), 1 << 22):
        some = hashes[start : start + (1 << 22)]
        hit = np.flatnonzero(np.isin(some, wanted))
        places[order[np.searchsorted(wanted, some[hit], sorter=order)]] = start + hit
    return places


def relabelled(found: Reviewed, table: Table, rows: NDArray[np.int64]) -> pa.Table:
    """Return the columns of labels of some rows, M, with the new ones; InputError where one is not of their type.

    Args:
        found: with labels.
        table: of the rows.
        rows: ascending, shape (M,).
    """
    columns = {}
    for name, new in found.labels.items():
        values = table.take(rows, [name]).column(0)
        kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
        given = values.cast(kind).to_pylist()
        places = {row: at for at, row in enumerate(rows.tolist())}
        try:
            texts = pa.array([new[row] for row in new if row in places], pa.string()).cast(kind).to_pylist()
        except pa.ArrowException:
            raise InputError(
                f"expected labels of type {kind} for column {name!r} in --verdicts, got others, such as "
                f"{next(iter(new.values()))[:40]!r}; undo them in curate review"
            ) from None
        for row, text in zip([row for row in new if row in places], texts, strict=True):
            given[places[row]] = text
        columns[name] = pa.array(given, kind)
    return pa.table(columns)
