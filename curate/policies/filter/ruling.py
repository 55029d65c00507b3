"""The ruling of one filter rule on rows, and the verdict of all rules."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from curate.policies.outcomes import DROP
from curate.tables.rows import Rows

T = TypeVar("T")


@dataclass(frozen=True)
class Ruling:
    """The ruling of one rule on M consecutive rows; it counts for rows that no rule dropped before.

    Attributes:
        keep: shape (M,) bool.
        judged: shape (M,) bool, all of ``keep`` among them; a row that was not is undecided.
        cuts: shape (G,) float64, the lowest value that stays (by group, else G = 1; NaN where nothing stays);
            None for a rule without a threshold.
        outcome: what else the rule found out, for its note; None where there is nothing.
    """

    keep: np.ndarray
    judged: np.ndarray
    cuts: np.ndarray | None
    outcome: Any = None


@dataclass(frozen=True)
class Verdict:
    """The outcomes of N rows.

    Attributes:
        outcome: shape (N,) uint8, an index into ``OUTCOMES``.
        rule: shape (N,), int8, or int16 for more than 127 rules: the rule that dropped the row or left it undecided;
            -1 for kept and failed.
        cuts: by rule, as in ``Ruling``.
        outcomes: of the rules, too.
        left: rows that were still in before each rule.
    """

    outcome: np.ndarray
    rule: np.ndarray
    cuts: list[np.ndarray | None]
    outcomes: list[Any]
    left: list[int]


@dataclass(frozen=True)
class RuleResult:
    """The result of one rule on all rows.

    Attributes:
        verdict: of all rules.
        index: of the rule.
        table_rows: N rows.
    """

    verdict: Verdict
    index: int
    table_rows: Rows
    _computed: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Return a value that all batches of rows share, computed for the first of them."""
        if name not in self._computed:
            self._computed[name] = compute()
        value: T = self._computed[name]
        return value

    @property
    def cuts(self) -> NDArray[np.float64] | None:
        """The lowest value that stays, by group, as in ``Ruling``."""
        return self.verdict.cuts[self.index]

    @property
    def details(self) -> Any:
        """Other facts of the rule."""
        return self.verdict.outcomes[self.index]

    @property
    def left(self) -> int:
        """Rows that earlier rules kept."""
        return self.verdict.left[self.index]

    def lost(self) -> tuple[int, int]:
        """Return how many rows it dropped or left undecided, and how many it dropped."""
        outcome = self.verdict.outcome[self.verdict.rule == self.index]
        return len(outcome), int((outcome == DROP).sum())
