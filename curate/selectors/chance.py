"""Random selectors, the baselines for all others: over all rows, by class, or among confirmed labels."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from curate.counted import counted
from curate.selectors.contract import Pool, Selection, Selector
from scoring.arrays import Array, Floats, Ints, Mask
from scoring.errors import InputError

STRATA = {"predicted": "probabilities", "given": "labels"}  # kind of class -> required field
SHARES = ("proportional", "equal")
LEAST = -1e-3  # a cross-entropy may be below 0 by rounding alone


@dataclass(frozen=True)
class Random(Selector):
    """Candidates in random order; gains are 1."""

    needs: ClassVar[tuple[str, ...]] = ()
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(N) time and memory"

    def _pick(self, pool: Pool, budget: int, seed: int) -> Selection:
        rows = np.random.default_rng(seed).permutation(pool.candidates)[:budget]
        return Selection(rows, np.ones(budget))


@dataclass(frozen=True)
class StratifiedRandom(Selector):
    """Candidates in random order within each class, classes alternating.

    With ``proportional``, every prefix of the picks has each class in its share of the candidates, within about a row;
    with ``equal``, the next pick is from the class with the fewest rows so far, including labelled ones.

    Args:
        by: "predicted", the most likely class, or "given", the label (rows without one form a class).
        shares: "proportional" or "equal".

    Source: proportional turns use the divisor method of Webster and Sainte-Lague, (j + 1/2) / size.
    """

    by: str = "predicted"
    shares: str = "proportional"

    needs: ClassVar[tuple[str, ...]] = ("probabilities",)
    optional: ClassVar[tuple[str, ...]] = ("labels",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(NC + N log N) time, O(N) memory"

    def __post_init__(self) -> None:
        if self.by not in STRATA or self.shares not in SHARES:
            raise InputError(
                f"by must be one of {', '.join(STRATA)} and shares one of {', '.join(SHARES)},"
                f" got {self.by!r} and {self.shares!r}"
            )
        object.__setattr__(self, "needs", (STRATA[self.by],))

    def _pick(self, pool: Pool, budget: int, seed: int) -> Selection:
        stratum = pool.array("labels") if self.by == "given" else pool.array("probabilities").argmax(1)
        generator = np.random.default_rng(seed)
        order = generator.permutation(len(pool.candidates))
        shuffled = stratum[pool.candidates[order]]
        classes, of_row, sizes = np.unique(shuffled, return_inverse=True, return_counts=True)
        turn = turn_in_class(of_row)  # 0, 1, ... inside each class, in the shuffled order
        if self.shares == "proportional":
            when = (turn + 0.5) / sizes[of_row]
        else:
            when = turn.astype(np.float64) + labelled_in(pool, classes)[of_row]
        lot = generator.permutation(len(classes))[of_row]  # random order among ties of classes
        chosen = np.lexsort((lot, when))[:budget]
        notes = ("no candidate has a known class, so these are random picks",) if (classes < 0).all() else ()
        return Selection(pool.candidates[order[chosen]], np.ones(budget), notes=notes)


def turn_in_class(classes: NDArray[np.integer], key: Array | None = None) -> Ints:
    """Return the number of earlier rows of the same class, shape (N,), in the order of a key, or of the rows.

    Args:
        classes: of each row, shape (N,).
        key: shape (N,), finite; ties go to the lower row.
    """
    rows = pl.DataFrame({"class": classes, "key": np.arange(len(classes)) if key is None else key})
    return rows.select(pl.col("key").rank("ordinal").over("class")).to_series().to_numpy().astype(np.int64) - 1


def labelled_in(pool: Pool, classes: Ints) -> Ints:
    """Return the number of labelled rows of each class (C,); 0 without labels."""
    if pool.labels is None:
        return np.zeros(len(classes), np.int64)
    known = np.sort(pool.labels[pool.labelled])
    return np.searchsorted(known, classes, side="right") - np.searchsorted(known, classes)


@dataclass(frozen=True)
class SmallLoss(Selector):
    """Random rows by class, among rows whose label is confirmed by a model of other rows.

    In each class the ``share`` of the candidates with the smallest holdout loss is trusted, rounded up; ties go to the
    lower row. Picks are random trusted rows, always from the class with the fewest rows so far, including labelled
    ones. When a class has no more trusted rows, its other rows follow, smallest loss first. Rows without a class come
    last, at random. Trust does not depend on the budget.

    It selects training rows, not rows to label: its candidates have labels. Gains are exp(-loss), the probability of
    the row's own label; the part ``trusted`` is 1 or 0.

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

    def _pick(self, pool: Pool, budget: int, seed: int) -> Selection:
        """Pick rows; InputError for a loss below 0, which is no cross-entropy."""
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


def _refuse_negative(rows: Ints, loss: Floats) -> None:
    if not len(loss) or loss.min() >= LEAST:
        return
    raise InputError(
        f"small-loss takes losses of at least 0, as a cross-entropy is, got {loss.min():.4g} in row "
        f"{rows[loss.argmin()]} of the pool; negate log-likelihoods"
    )


def _notes(trusted: Mask, unknown: Mask, share: float) -> tuple[str, ...]:
    """Return notes on picks without a confirmed label."""
    if unknown.all():
        return ("no candidate has a known class, so these are random picks",)
    rest = int((~trusted & ~unknown).sum())
    notes = []
    if rest:
        picks = counted(rest, "pick is", "picks are")
        notes.append(f"{picks} not among the trusted {share:g} of the class, which is used up")
    if unknown.any():
        notes.append(f"{counted(int(unknown.sum()), 'pick has', 'picks have')} no class: all rows with one were picked")
    return tuple(notes)
