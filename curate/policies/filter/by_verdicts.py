"""The rule by verdicts of ``curate review``: drop what a reviewer dropped."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from curate.policies.filter.rule import Reasons, Rule, RuleArguments, RuleResult, Ruling
from curate.policies.outcomes import KEEP, UNDECIDED
from curate.policies.reviewed import RULE, VerdictLines, label_changes, with_images
from curate.tables.needs import Needs
from curate.tables.rows import Rows
from curate.tables.table import Table


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

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M consecutive rows; ``inside``, shape (M,), marks those that no rule dropped before."""
        verdicts = self.lines.reviewed(table_rows)
        return Ruling(~verdicts.drop[rows], np.ones(len(inside), bool), None, verdicts)

    def needs(self, table: Table) -> Needs:
        """Return the columns to read: those that match verdicts to images."""
        return with_images(Needs(), table)

    def typed(self) -> str:
        """Return the rule as typed, wherever its file is when the receipt is checked."""
        return f"--{self.name} {Path(self.lines.file).name}"

    def named_files(self) -> list[tuple[str, str]]:
        """Return the files it was read from, with their options."""
        return [(f"--{self.name}", self.lines.file)]

    def reasons(self, result: RuleResult, rows: NDArray[np.int64], dropped: NDArray[np.bool_]) -> Reasons:
        """Return the reasons of M rows: the reviewers who dropped each."""
        review = result.details
        return Reasons(
            [f"dropped by {review.by[row]}" if review.drop[row] else "not dropped in review" for row in rows.tolist()]
        )

    def notes(self, result: RuleResult) -> list[str]:
        """Return notes on the verdicts used, one sentence a line."""
        return self.lines.notes(result.details)

    def settle(self, result: RuleResult, table: Table) -> dict[str, Any]:
        """Keep undecided rows that a reviewer kept; return new labels as fields of ``Decided``."""
        outcome = result.verdict.outcome
        outcome[result.details.keep & (outcome == UNDECIDED)] = KEEP
        return label_changes(result.details, table, outcome, result.table_rows.hashes)

    def to_json(self) -> dict[str, Any]:
        """Return the rule as plain JSON, for a receipt: the file by the digest of its lines that count."""
        return {"rule": self.name, **self.lines.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the rule that ``to_json`` wrote; InputError if invalid."""
        return cls(VerdictLines.from_json(value))
