"""The measures of a subset as plain values."""

from dataclasses import dataclass, field
from typing import Any

from curate.evaluation.subset.fairness import Fairness
from curate.evaluation.subset.holdings import Diversity, SubsetCoverage
from curate.evaluation.subset.trained import SideAccuracies
from curate.evaluation.subset.verdict import SubsetVerdict, verdict_of
from scoring.metrics.resampling import Interval


@dataclass(frozen=True)
class Noise:
    """Estimated shares of wrong labels, each with a 95 % interval."""

    subset: Interval
    all_rows: Interval
    tested: Interval


@dataclass
class SubsetFindings:
    """The results of ``curate evaluate --subset``.

    Attributes:
        table: the file.
        subset: the file.
        rows: of the table.
        kept: of them, that are in the subset.
        left_out: reason -> rows of the table that no side holds.
        label: column of the classes; None without.
        classes: how many.
        test: what was requested to be tested on, as typed.
        n_tested: rows that are.
        n_trained: side -> rows that are trained on.
        share: of the rows that could be trained on, how many are looked at.
        copies: test rows with a near-copy among the rows that are trained on.
        copies_left_out: whether they were left out.
        lost: classes of the whole that the subset has no row of.
        trained: what every kind of model says, the verdict first's.
        not_trained: kind of model -> why not.
        noise: wrong labels; None without labels.
        diversity: Vendi scores.
        coverage: nearness to the whole.
        fairness: of each column that was requested.
        settings: what decides the numbers.
    """

    table: str
    subset: str
    rows: int
    kept: int
    left_out: dict[str, int]
    label: str | None
    classes: int
    test: str
    n_tested: int
    n_trained: dict[str, int]
    share: float
    copies: int = 0
    copies_left_out: bool = False
    lost: list[str] = field(default_factory=list)
    trained: list[SideAccuracies] = field(default_factory=list)
    not_trained: dict[str, str] = field(default_factory=dict)
    noise: Noise | None = None
    diversity: Diversity | None = None
    coverage: SubsetCoverage | None = None
    fairness: list[Fairness] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def verdicts(self) -> list[SubsetVerdict]:
        """The verdict from each kind of model; the first counts."""
        return [verdict_of(model) for model in self.trained]
