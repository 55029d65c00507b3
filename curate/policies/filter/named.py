"""Rules on columns (bounds and conditions), and rules by key: listed keys, and reviewers' verdicts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from curate.counted import counted
from curate.policies.decided import KEEP, UNDECIDED
from curate.policies.filter.rule import Reasons, Rule, RuleArguments, RuleResult, Ruling, ScoreRule
from curate.policies.reviewed import RULE, VerdictLines, label_changes, with_images
from curate.tables.amount import exact_number
from curate.tables.arrays import EXACT_DIGITS
from curate.tables.digests import text_hashes
from curate.tables.known import read_known
from curate.tables.needs import Needs, default_column
from curate.tables.rows import Rows
from curate.tables.spelling import refuse_unmatched, spelled_as
from curate.tables.table import Table
from scoring.arrays import Ints, Mask
from scoring.errors import InputError


@dataclass(frozen=True)
class BoundRule(ScoreRule):
    """Keep values on one side of ``bound``, in the column's unit and precision."""

    bound: str | int | float
    column: str
    per: str | None = field(default=None, init=False)
    even: str | None = field(default=None, init=False)
    stage = 1
    high: ClassVar[bool]
    words: ClassVar[tuple[str, str, str]]  # texts for kept values, dropped values, and the bound

    def __post_init__(self) -> None:
        _ = self.parsed

    @classmethod
    def read(cls, value: Any, arguments: RuleArguments) -> Self:
        """Return the rule from its typed value; InputError for an invalid one."""
        return cls(value, arguments.column or default_column(arguments.table))

    @property
    def parsed(self) -> Fraction:
        """The bound as a number; InputError if invalid."""
        try:
            return exact_number(str(self.bound).replace("_", "x"))
        except (ValueError, ZeroDivisionError):
            sign = ">=" if self.high else "<="
            raise InputError(
                f"--{self.name} takes a finite number in the unit of its column, got {str(self.bound)[:40]!r}; write "
                f"it like --{self.name} 0.5 --column {self.column}, or --where '{self.column} {sign} 0.5'"
            ) from None

    @property
    def keeps_high(self) -> bool:
        """Whether high values are kept."""
        return self.high

    def judge(self, table_rows: Rows, rows: slice, inside: Mask) -> Ruling:
        """Decide M consecutive rows; ``inside``, shape (M,), masks the rows that no earlier rule dropped."""
        column = table_rows.exact[self.column]
        values, valid = column.values[rows], column.valid[rows]
        cut = _in_type(self.parsed, values.dtype, column.is_decimal, up=self.high)
        is_float = np.issubdtype(values.dtype, np.floating) and not column.is_decimal
        shown = float(cut) if is_float else _to_float(self.parsed)
        return Ruling((values >= cut if self.high else values <= cut) & valid, valid, np.array([shown]))

    def endings(self, result: RuleResult) -> list[list[str]]:
        """Return the texts after the score: for kept, dropped, and dropped again, as bounds have no ties."""
        stays, goes, name = self.words
        kept, dropped = [f" is {stays} the {name} {self.bound}"], [f" is {goes} the {name} {self.bound}"]
        return [kept, dropped, dropped]


@dataclass(frozen=True)
class Minimum(BoundRule):
    """Keep values of at least ``bound``, in the column's unit and precision."""

    name: ClassVar[str] = "min"
    high: ClassVar[bool] = True
    words: ClassVar[tuple[str, str, str]] = ("at least", "below", "minimum")


@dataclass(frozen=True)
class Maximum(BoundRule):
    """Keep values of at most ``bound``, in the column's unit and precision."""

    name: ClassVar[str] = "max"
    high: ClassVar[bool] = False
    words: ClassVar[tuple[str, str, str]] = ("at most", "above", "maximum")


def _in_type(bound: Fraction, kind: np.dtype, is_decimal: bool, *, up: bool) -> Any:
    """Return a bound in the precision of the column, or in a decimal's digits: ``--min 0.1`` keeps a float32 0.1."""
    if np.issubdtype(kind, np.integer):
        return ceil(bound) if up else floor(bound)
    if is_decimal:
        digits = Context(prec=EXACT_DIGITS, rounding=ROUND_CEILING if up else ROUND_FLOOR)
        bound = Fraction(digits.divide(Decimal(bound.numerator), Decimal(bound.denominator)))
    with np.errstate(over="ignore"):
        return kind.type(_to_float(bound))


def _to_float(bound: Fraction) -> float:
    try:
        return float(bound)
    except OverflowError:
        return float("inf") if bound > 0 else float("-inf")


@dataclass(frozen=True)
class Where(Rule):
    """Keep rows that meet a condition on any columns; see ``curate.tables.where`` for the language."""

    condition: str
    column: str | None = field(default=None, init=False)
    per: str | None = field(default=None, init=False)
    name: ClassVar[str] = "where"

    @classmethod
    def read(cls, value: Any, arguments: RuleArguments) -> Self:
        """Return the rule from its typed value; InputError for an invalid one."""
        return cls(value)

    def judge(self, table_rows: Rows, rows: slice, inside: Mask) -> Ruling:
        """Decide M consecutive rows; ``inside``, shape (M,), masks the rows that no earlier rule dropped."""
        truth = table_rows.truths[self.condition][rows]
        return Ruling(truth == 1, truth >= 0, None)

    def needs(self, table: Table) -> Needs:
        """Return the columns and facts to read of a table."""
        return Needs(conditions=((f"--{self.name}", self.condition),))

    def missing(self) -> str:
        """Return why rows are undecided."""
        return f"the condition has no value (null) for this row: {self.condition}"

    def reasons(self, result: RuleResult, rows: Ints, dropped: Mask) -> Reasons:
        """Return why M rows are kept or dropped; ``dropped`` has shape (M,)."""
        texts = pa.array([f"meets {self.condition}", f"does not meet {self.condition}"])
        return Reasons(texts.take(pa.array(dropped.astype(np.int8))))


MOST_KEYS = 100_000  # maximal keys of a file, since they are stored in the receipt


@dataclass(frozen=True)
class NameRule(Rule):
    """Keep or drop the rows whose keys are listed."""

    file: str  # path of the file
    keys: tuple[str, ...]
    note: str = ""  # on keys spelled differently in file and table
    column: str | None = field(default=None, init=False)
    per: str | None = field(default=None, init=False)
    keeps: ClassVar[bool]  # whether listed rows are kept

    @classmethod
    def read(cls, value: Any, arguments: RuleArguments) -> Self:
        """Return the rule with the keys of a file.

        Args:
            value: path of a CSV, TSV, JSON lines or Parquet file with a column ``key``, or a text file with a key per
                line; spellings are adapted to the table.
            arguments: with the table.

        Raises:
            InputError: for an unreadable file, or one without keys, without any of the table's keys, or too long for a
                receipt.
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

    def judge(self, table_rows: Rows, rows: slice, inside: Mask) -> Ruling:
        """Decide M consecutive rows; ``inside``, shape (M,), masks the rows that no earlier rule dropped."""
        return Ruling(self.named(table_rows, rows) == self.keeps, np.ones(len(inside), bool), None)

    def named(self, table_rows: Rows, rows: slice = slice(None)) -> Mask:
        """Return a mask of the listed rows among M rows, shape (M,), by the hashes of their keys."""
        keys = text_hashes(self.keys)
        return np.isin(table_rows.hashes[rows], keys)

    def named_files(self) -> list[tuple[str, str]]:
        """Return the pairs of an option and the file it was read from."""
        return [(f"--{self.name}", self.file)]

    def reasons(self, result: RuleResult, rows: Ints, dropped: Mask) -> Reasons:
        """Return whether each of M rows is listed, as reasons."""
        texts = pa.array([f"is not listed in {self.file}", f"is listed in {self.file}"])
        return Reasons(texts.take(pa.array((dropped != self.keeps).astype(np.int8))))

    def notes(self, result: RuleResult) -> list[str]:
        """Return notes on how many of the keys are in the table, and on their spelling."""
        n_matched = int(self.named(result.table_rows).sum())
        text = f"{self.typed()}: {n_matched:,} of {counted(len(self.keys), 'key')} are in the table"
        return [f"{text}; {self.note}" if self.note else text]


@dataclass(frozen=True)
class Keys(NameRule):
    """Keep the rows whose keys are listed."""

    name: ClassVar[str] = "keys"
    keeps: ClassVar[bool] = True


@dataclass(frozen=True)
class WithoutKeys(NameRule):
    """Drop the rows whose keys are listed."""

    name: ClassVar[str] = "without-keys"
    keeps: ClassVar[bool] = False
    by_name = True


@dataclass(frozen=True)
class ByVerdicts(Rule):
    """Drop the rows that reviewers dropped."""

    lines: VerdictLines
    column: str | None = field(default=None, init=False)
    per: str | None = field(default=None, init=False)
    name: ClassVar[str] = RULE
    ranks = True
    once = True
    by_name = True

    @classmethod
    def read(cls, value: Any, arguments: RuleArguments) -> Self:
        """Return the rule from its typed value; InputError for an invalid one."""
        return cls(VerdictLines.of(value, arguments.table))

    def judge(self, table_rows: Rows, rows: slice, inside: Mask) -> Ruling:
        """Decide M consecutive rows; ``inside``, shape (M,), masks the rows that no earlier rule dropped."""
        verdicts = self.lines.reviewed(table_rows)
        return Ruling(~verdicts.drop[rows], np.ones(len(inside), bool), None, verdicts)

    def needs(self, table: Table) -> Needs:
        """Return the columns to read: those that match verdicts to images."""
        return with_images(Needs(), table)

    def typed(self) -> str:
        """Return the rule as typed, independent of the present path of its file."""
        return f"--{self.name} {Path(self.lines.file).name}"

    def named_files(self) -> list[tuple[str, str]]:
        """Return the pairs of an option and the file it was read from."""
        return [(f"--{self.name}", self.lines.file)]

    def reasons(self, result: RuleResult, rows: Ints, dropped: Mask) -> Reasons:
        """Return the reasons of M rows: the reviewers who dropped each."""
        review = result.details
        return Reasons(
            [f"dropped by {review.by[row]}" if review.drop[row] else "not dropped in review" for row in rows.tolist()]
        )

    def notes(self, result: RuleResult) -> list[str]:
        """Return notes on the verdicts, one sentence per line."""
        return self.lines.notes(result.details)

    def settle(self, result: RuleResult, table: Table) -> dict[str, Any]:
        """Keep undecided rows that a reviewer kept; return new labels as fields of ``Decided``."""
        outcome = result.verdict.outcome
        outcome[result.details.keep & (outcome == UNDECIDED)] = KEEP
        return label_changes(result.details, table, outcome, result.table_rows.hashes)

    def to_json(self) -> dict[str, Any]:
        """Return the rule as plain JSON for a receipt, with the digest of the lines used."""
        return {"rule": self.name, **self.lines.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the rule that ``to_json`` wrote; InputError if invalid."""
        return cls(VerdictLines.from_json(value))
