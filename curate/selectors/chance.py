"""Random selectors: the baselines that every other selector has to beat."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from curate.selectors.contract import Selector, check
from curate.selectors.pool import Pool, Selection
from scoring.errors import InputError

STRATA = {"predicted": "probabilities", "given": "labels"}  # whose class -> what it takes
SHARES = ("proportional", "equal")


@dataclass(frozen=True)
class Random(Selector):
    """Candidates in a random order.

    Gains are 1: every row counts the same.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(N) time and memory"

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        check(pool, budget, self.needs)
        rows = np.random.default_rng(seed).permutation(pool.candidates)[:budget]
        return Selection(rows, np.ones(budget))


@dataclass(frozen=True)
class StratifiedRandom(Selector):
    """Candidates in a random order inside each class, the classes taking turns.

    With ``proportional`` every start of the picks has each class in its share of the candidates, within a row or so;
    with ``equal`` the class with the fewest rows so far, labelled ones counted, goes next while it has candidates.

    Args:
        by: "predicted", the likeliest class, or "given", the label (rows without one are their own class).
        shares: "proportional" or "equal".

    Source: proportional turns are the divisor method of Webster and Sainte-Lague, seats by (j + 1/2) / size.
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

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        check(pool, budget, self.needs)
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
        lot = generator.permutation(len(classes))[of_row]  # which class goes first among equals
        chosen = np.lexsort((lot, when))[:budget]
        notes = ("no candidate has a class that is given, so these are random picks",) if (classes < 0).all() else ()
        return Selection(pool.candidates[order[chosen]], np.ones(budget), notes=notes)


def turn_in_class(classes: NDArray[np.integer], key: NDArray | None = None) -> NDArray[np.int64]:
    """Return how many rows of its class come before each row, shape (N,): by a key, the lowest first, or as they come.

    Args:
        classes: of each row, shape (N,).
        key: shape (N,), finite; ties go to the lower row. None for the order of the rows.
    """
    rows = pl.DataFrame({"class": classes, "key": np.arange(len(classes)) if key is None else key})
    return rows.select(pl.col("key").rank("ordinal").over("class")).to_series().to_numpy().astype(np.int64) - 1


def labelled_in(pool: Pool, classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many labelled rows each class has, by their labels; 0 where labels are not given.

    Args:
        pool: the rows.
        classes: shape (C,).
    """
    if pool.labels is None:
        return np.zeros(len(classes), np.int64)
    known = np.sort(pool.labels[pool.labelled])
    return np.searchsorted(known, classes, side="right") - np.searchsorted(known, classes)
