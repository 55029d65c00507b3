"""A selector for rows that carry labels, some of them wrong: those whose label other rows confirm."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.counted import counted
from curate.selectors.chance import labelled_in, turn_in_class
from curate.selectors.contract import Selector, check
from curate.selectors.pool import Pool, Selection
from scoring.errors import InputError

LEAST = -1e-3  # a cross-entropy may be below 0 by rounding alone


@dataclass(frozen=True)
class SmallLoss(Selector):
    """Of rows with labels that may be wrong, at random by class among those that a model of other rows confirms.

    In each given class the ``share`` of the candidates with the smallest holdout loss is trusted, rounded up; ties go
    to the lower row. Picks are trusted rows at random, the classes taking turns: the one with the fewest rows so far,
    labelled ones counted, goes next. A class without further trusted rows gives its others, the smallest loss first.
    Rows without a class come last, at random. What is trusted does not depend on the budget.

    For choosing what to train on, never what to label: its candidates carry labels. Gains are exp(-loss), the
    probability of the row's own label; the part ``trusted`` is 1 or 0.

    Args:
        share: of each class that is trusted, in (0, 1]; 1 is random by class.

    Source: small-loss selection, Jiang et al. 2018, arXiv:1712.05055, and Han et al. 2018, arXiv:1804.06872; the loss
    by a model that did not see the row, Northcutt et al. 2021, arXiv:1911.00068. Random picks among the trusted are
    ours: the smallest losses alone are the easiest rows.
    """

    share: float = 0.5

    needs: ClassVar[tuple[str, ...]] = ("labels", "holdout_loss")
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(N log N) time, O(N) memory"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(
                f"the share of each class that is trusted must be in (0, 1], got {self.share:g}; 0.5 trusts half"
            )

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does.

        Raises:
            InputError: as ``check``; also for a loss below 0, which is no cross-entropy.
        """
        check(pool, budget, self.needs)
        rows = pool.candidates
        labels, loss = pool.array("labels")[rows], pool.array("holdout_loss")[rows].astype(np.float64)
        unknown = labels < 0
        _refuse_negative(rows[~unknown], loss[~unknown])
        classes, of_row, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        generator = np.random.default_rng(seed)
        lot, class_lot = generator.permutation(len(rows)), generator.permutation(len(classes))
        nth = turn_in_class(of_row, np.where(unknown, 0.0, loss))  # 0, 1, ... in each class, smallest loss first
        trusted = (nth < np.ceil((self.share * sizes).round(6))[of_row]) & ~unknown
        turn = turn_in_class(of_row, np.where(trusted | unknown, lot, len(rows) + nth))
        when = turn + labelled_in(pool, classes)[of_row]
        picked = np.lexsort((class_lot[of_row], when, unknown))[:budget]
        return Selection(
            rows[picked],
            np.where(unknown, 0.0, np.exp(-np.maximum(loss, 0.0)))[picked],
            {"trusted": trusted[picked].astype(np.float64)},
            _notes(trusted[picked], unknown[picked], self.share),
        )


def _refuse_negative(rows: NDArray[np.int64], loss: NDArray[np.float64]) -> None:
    if not len(loss) or loss.min() >= LEAST:
        return
    raise InputError(
        f"small-loss takes losses of at least 0, as a cross-entropy is, got {loss.min():.4g} in row "
        f"{rows[loss.argmin()]} of the pool; of a log-likelihood give the negative"
    )


def _notes(trusted: NDArray[np.bool_], unknown: NDArray[np.bool_], share: float) -> tuple[str, ...]:
    """Say what the picks are that are not trusted."""
    if unknown.all():
        return ("no candidate has a class that is given, so these are random picks",)
    rest = int((~trusted & ~unknown).sum())
    notes = []
    if rest:
        picks = counted(rest, "pick is", "picks are")
        notes.append(f"{picks} not among the trusted {share:g} of the class, which has no more of them")
    if unknown.any():
        notes.append(f"{counted(int(unknown.sum()), 'pick has', 'picks have')} no class: all rows with one were taken")
    return tuple(notes)
