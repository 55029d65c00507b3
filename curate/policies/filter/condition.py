"""The rule by a condition on any columns."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.policies.filter.rule import Reasons, Rule, RuleArguments, RuleResult, Ruling
from curate.tables.needs import Needs
from curate.tables.rows import Rows
from curate.tables.table import Table


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

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M consecutive rows; ``inside``, shape (M,), marks those that no rule dropped before."""
        truth = table_rows.truths[self.condition][rows]
        return Ruling(truth == 1, truth >= 0, None)

    def needs(self, table: Table) -> Needs:
        """Return the columns and facts to read of a table."""
        return Needs(conditions=((f"--{self.name}", self.condition),))

    def missing(self) -> str:
        """Return why a row that cannot be judged is undecided."""
        return f"a column of the condition has no value (null or NaN): {self.condition}"

    def reasons(self, result: RuleResult, rows: NDArray[np.int64], dropped: NDArray[np.bool_]) -> Reasons:
        """Return why M rows are kept or dropped; ``dropped`` has shape (M,)."""
        texts = pa.array([f"meets {self.condition}", f"does not meet {self.condition}"])
        return Reasons(texts.take(pa.array(dropped.astype(np.int8))))
