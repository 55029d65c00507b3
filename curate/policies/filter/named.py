"""Rules by name: keep or drop the rows whose keys a file holds, such as what was ticked on a report."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.policies.filter.ruling import Ruling
from curate.tables.digests import tie_breaks
from curate.tables.known import read_known
from curate.tables.rows import Rows
from curate.tables.spelling import refuse_unmatched, spelled_as
from curate.tables.table import Table
from scoring.errors import InputError

MOST_KEYS = 100_000  # of a file; they are in the receipt


@dataclass(frozen=True)
class Keys:
    """Keep the rows whose keys are named."""

    file: str  # where they were
    keys: tuple[str, ...]
    note: str = ""  # on keys that the file writes otherwise than the table
    column: str | None = field(default=None, init=False)
    per: str | None = field(default=None, init=False)
    name: ClassVar[str] = "keys"
    ranks: ClassVar[bool] = False

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M rows in a row, of which those ``inside``, shape (M,), are still in."""
        return Ruling(named(self, table_rows, rows), np.ones(len(inside), bool), None)


@dataclass(frozen=True)
class WithoutKeys:
    """Drop the rows whose keys are named."""

    file: str
    keys: tuple[str, ...]
    note: str = ""
    column: str | None = field(default=None, init=False)
    per: str | None = field(default=None, init=False)
    name: ClassVar[str] = "without-keys"
    ranks: ClassVar[bool] = False

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M rows in a row, of which those ``inside``, shape (M,), are still in."""
        return Ruling(~named(self, table_rows, rows), np.ones(len(inside), bool), None)


def named(rule: Keys | WithoutKeys, table_rows: Rows, rows: slice = slice(None)) -> NDArray[np.bool_]:
    """Return which of M rows in a row the rule names, shape (M,), by the hashes of their keys."""
    return np.isin(table_rows.hashes[rows], tie_breaks([key.encode("utf-8", "surrogateescape") for key in rule.keys]))


def read_rule(
    kind: type[Keys] | type[WithoutKeys], path: str | Path, table: Table, *, allow_unmatched: bool = False
) -> Keys | WithoutKeys:
    """Return the rule by the keys of a file.

    Args:
        kind: of rule.
        path: of a CSV, TSV, JSON lines or Parquet file with a column ``key``, or a text file with a key a line.
        table: that the keys are of, in whose spelling they are taken.
        allow_unmatched: whether a file of which the table has no key at all is taken.

    Raises:
        InputError: if it cannot be read, has no key, none that the table has, or more than a receipt should hold.
    """
    known = spelled_as(read_known(path, labels=False), table)
    if not known.keys:
        raise InputError(f"--{kind.name} {path} names no key; leave the option out, or name some")
    if len(known.keys) > MOST_KEYS:
        raise InputError(
            f"--{kind.name} takes up to {MOST_KEYS:,} keys, got {len(known.keys):,} in {path}; give them as a column "
            "of the table, and use --where"
        )
    if not allow_unmatched:
        refuse_unmatched(known, kind.name, table)
    return kind(str(path), tuple(key.decode("utf-8", "surrogateescape") for key in known.keys), known.note)
