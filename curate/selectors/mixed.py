"""Any score times any coverage: the best by one, and of these a diverse batch by the other."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from curate.selectors.contract import Selector, check
from curate.selectors.pool import Pool, Selection
from curate.selectors.table import selector_named
from scoring.errors import InputError


@dataclass(frozen=True)
class Mixed(Selector):
    """Take the best ``factor`` times budget candidates by one strategy, and pick among them by another.

    With margin and k-means it is the usual cure for a batch of the most uncertain rows that all look alike. Gains are
    the coverage's; the part ``score`` is the gain that the first strategy gave a row. No prefix: a larger budget
    makes a longer shortlist.

    Source: Zhdanov 2019, arXiv:1901.05954, for margin and k-means; there the factor is 10.
    """

    score: str = "margin"
    coverage: str = "k-means"
    factor: float = 10.0
    needs: ClassVar[tuple[str, ...]] = ("probabilities", "vectors")
    optional: ClassVar[tuple[str, ...]] = ("uncertainty",)  # with score="score"
    prefix: ClassVar[bool] = False
    cost: ClassVar[str] = "the score's, and the coverage's with N = 10 K candidates"

    def __post_init__(self) -> None:
        if not self.factor >= 1:
            raise InputError(f"the factor must be at least 1, candidates in the shortlist a pick, got {self.factor}")
        scored, covered = self._strategies()
        object.__setattr__(self, "needs", tuple(dict.fromkeys((*scored.needs, *covered.needs))))
        object.__setattr__(self, "uses_graph", scored.uses_graph or covered.uses_graph)

    def _strategies(self) -> tuple[Selector, Selector]:
        for name in (self.score, self.coverage):
            if name == "mixed":
                raise InputError("a mixed strategy is made of two others, got 'mixed' as one of them")
        return selector_named(self.score)(), selector_named(self.coverage)()

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        check(pool, budget, self.needs)
        scored, covered = self._strategies()
        ranked = scored(pool, min(len(pool.candidates), int(np.ceil(self.factor * budget))), seed=seed)
        order = np.argsort(ranked.rows)
        chosen = covered(replace(pool, candidates=ranked.rows[order]), budget, seed=seed)
        gains = ranked.gains[order][np.searchsorted(ranked.rows[order], chosen.rows)]
        note = f"{self.coverage} among the {len(order):,} candidates that {self.score} ranks first"
        return Selection(
            chosen.rows, chosen.gains, {**chosen.parts, "score": gains}, (note, *ranked.notes, *chosen.notes)
        )
