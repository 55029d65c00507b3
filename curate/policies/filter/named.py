"""Rules by key: keep or drop the rows whose keys a file lists, for example rows ticked on a report."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.counted import counted
from curate.policies.filter.rule import Reasons, Rule, RuleArguments, RuleResult, Ruling
from curate.tables.digests import text_hashes
from curate.tables.known import read_known
from curate.tables.rows import Rows
from curate.tables.spelling import refuse_unmatched, spelled_as
from scoring.errors import InputError

MOST_KEYS = 100_000  # of a file; they are in the receipt


@dataclass(frozen=True)
class NameRule(Rule):
    """Keep or drop the rows whose keys are named."""

    file: str  # where they were
    keys: tuple[str, ...]
    note: str = ""  # on keys that the file writes otherwise than the table
    column: str | None = field(default=None, init=False)
    per: str | None = field(default=None, init=False)
    keeps: ClassVar[bool]  # what is named

    @classmethod
    def read(cls, value: Any, arguments: RuleArguments) -> Self:
        """Return the rule by the keys of a file.

        Args:
            value: path of a CSV, TSV, JSON lines or Parquet file with a column ``key``, or a text file with a key a
                line; keys are taken in the spelling of the table.
            arguments: with the table.

        Raises:
            InputError: if it cannot be read, has no key, none that the table has, or more than a receipt should hold.
        """
        known = spelled_as(read_known(value, labels=False), arguments.table)
        if not known.keys:
            raise InputError(f"--{cls.name} {value} holds no key; leave the option out, or add keys")
        if len(known.keys) > MOST_KEYS:
            raise InputError(
                f"--{cls.name} takes up to {MOST_KEYS:,} keys, got {len(known.keys):,} in {value}; add them "
                "as a column of the table, and use --where"
            )
        if not arguments.allow_unmatched:
            refuse_unmatched(known, cls.name, arguments.table)
        return cls(str(value), tuple(key.decode("utf-8", "surrogateescape") for key in known.keys), known.note)

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M consecutive rows; ``inside``, shape (M,), marks those that no rule dropped before."""
        return Ruling(self.named(table_rows, rows) == self.keeps, np.ones(len(inside), bool), None)

    def named(self, table_rows: Rows, rows: slice = slice(None)) -> NDArray[np.bool_]:
        """Return which of M rows in a row are named, shape (M,), by the hashes of their keys."""
        keys = text_hashes(self.keys)
        return np.isin(table_rows.hashes[rows], keys)

    def named_files(self) -> list[tuple[str, str]]:
        """Return the files it was read from, with their options."""
        return [(f"--{self.name}", self.file)]

    def reasons(self, result: RuleResult, rows: NDArray[np.int64], dropped: NDArray[np.bool_]) -> Reasons:
        """Return whether each of M rows is named."""
        texts = pa.array([f"is not listed in {self.file}", f"is listed in {self.file}"])
        return Reasons(texts.take(pa.array((dropped != self.keeps).astype(np.int8))))

    def notes(self, result: RuleResult) -> list[str]:
        """Return how many of the keys the table has, and how they are spelled."""
        n_matched = int(self.named(result.table_rows).sum())
        text = f"{self.typed()}: {n_matched:,} of {counted(len(self.keys), 'key')} are in the table"
        return [f"{text}; {self.note}" if self.note else text]


@dataclass(frozen=True)
class Keys(NameRule):
    """Keep the rows whose keys are named."""

    name: ClassVar[str] = "keys"
    keeps: ClassVar[bool] = True


@dataclass(frozen=True)
class WithoutKeys(NameRule):
    """Drop the rows whose keys are named."""

    name: ClassVar[str] = "without-keys"
    keeps: ClassVar[bool] = False
    by_name = True
