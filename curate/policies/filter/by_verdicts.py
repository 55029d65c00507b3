"""The rule by the verdicts of ``curate review``: drop what a reviewer dropped."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.policies.filter.ruling import Ruling
from curate.policies.reviewed import RULE, VerdictLines
from curate.tables.rows import Rows


@dataclass(frozen=True)
class ByVerdicts(VerdictLines):
    """Drop the rows that reviewers dropped."""

    column: str | None = field(default=None, init=False)
    per: str | None = field(default=None, init=False)
    name: ClassVar[str] = RULE
    ranks: ClassVar[bool] = True

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M rows in a row, of which those ``inside``, shape (M,), are still in."""
        verdicts = self.reviewed(table_rows)
        return Ruling(~verdicts.drop[rows], np.ones(len(inside), bool), None, verdicts)

    def to_json(self) -> dict[str, Any]:
        """Return the rule for a receipt."""
        return {"rule": self.name, **super().to_json()}
