"""The number of rows to keep of each cell: integers close to the target shares."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.columns import EMBEDDING
from curate.counted import counted
from curate.policies.balance.target import shares_in
from curate.policies.request import Request
from curate.tables.amount import Amount
from curate.tables.needs import EMBEDDINGS, Needs
from curate.tables.rows import Codes
from curate.tables.signals import Signal, default_column, signal
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.lookup import lookup

CERTAIN, TYPICAL, RANDOM = "certain", "typical", "random"
WITHIN = {
    CERTAIN: "the most certain by a score",
    TYPICAL: "those with the nearest neighbours in their cell",
    RANDOM: "drawn by the hash of the key",
}
CLUSTERS = "clusters"
USUAL_CLUSTERS = 100
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
N_NAMED = 3


def clustered(vectors: NDArray[np.floating], k: int | None, seed: int) -> Codes:
    """Return the cluster of each unit row (M, D) by spherical k-means, without empty clusters.

    Args:
        vectors: unit rows, shape (M, D).
        k: number of clusters; None for the smaller of 100 and a tenth of the rows.
        seed: of the initial centres.

    Raises:
        InputError: for more clusters than rows, or less than one.
    """
    from curate.selectors.clusters import grouped  # loads torch, which a balance of classes has no need of

    n = len(vectors)
    k = max(1, min(USUAL_CLUSTERS, n // 10)) if k is None else k
    if not 1 <= k <= n:
        raise InputError(f"--clusters must be between 1 and the {n:,} rows with an embedding, got {k:,}")
    used, codes = np.unique(grouped(vectors, k, seed)[0], return_inverse=True)
    width = len(str(k - 1))
    return Codes(codes.astype(np.int32), [f"{number:0{width}}" for number in used.tolist()])


def typical(vectors: NDArray[np.floating], codes: NDArray[np.int32], seed: int) -> NDArray[np.float64]:
    """Return the density around each row within its cell, shape (M,)."""
    from curate.selectors.clusters import typicality  # loads torch, which a balance of classes has no need of

    density = np.empty(len(codes))
    order = np.argsort(codes, kind="stable").astype(np.int32)
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(rows):
            density[rows] = typicality(vectors[rows], seed)
    return density


@dataclass(frozen=True)
class BalanceRequest(Request):
    """The validated request of a balance; fields are as in ``BalanceOptions`` except for these.

    Attributes:
        alpha: exponent of the cell sizes that gives the shares: 0 is uniform, 1 unchanged.
        shares: class -> share, instead of the exponent; empty for none.
    """

    rule: ClassVar[str] = "balance"
    per: str
    alpha: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)
    rows: str | None = None
    within: str = RANDOM
    column: str | None = None
    clusters: int | None = None
    nearest: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        lookup(WITHIN, self.within, kind="order within a cell")
        if self.rows is not None:
            Amount.parse(self.rows, "--rows")
        if self.column and self.within != CERTAIN:
            raise InputError(f"--column {self.column} is for --within {CERTAIN}, got {self.within}; leave it out")
        if self.clusters is not None and self.per != CLUSTERS:
            raise InputError(f"--clusters {self.clusters} is for --per {CLUSTERS}, got --per {self.per}; leave it out")
        if self.nearest and not self.shares:
            raise InputError(
                "--nearest is for shares of classes that are named by --to; others are met as closely as possible"
            )
        if not 0 <= self.seed < 2**63:
            raise InputError(f"--seed must be between 0 and 2^63 - 1, got {self.seed}; choose another")

    def by_clusters(self, table: Table) -> bool:
        """Return whether cells are k-means clusters: if their number is given, or no column has the name."""
        return self.per == CLUSTERS and (self.clusters is not None or CLUSTERS not in table.schema.names)

    def by_embedding(self, table: Table) -> bool:
        """Return whether embeddings are used."""
        return self.within == TYPICAL or self.by_clusters(table)

    def signal(self, table: Table) -> Signal | None:
        """Return the score column and its direction; None if no score is requested; InputError if it cannot be used."""
        if self.within != CERTAIN:
            return None
        return signal(self.column or default_column(table), table, certain_first=True, flag="--column")

    def needs(self, table: Table) -> Needs:
        """Return the columns and facts to read from the table; InputError for a missing column."""
        by_clusters, score = self.by_clusters(table), self.signal(table)
        if self.by_embedding(table) and EMBEDDING not in table.schema.names:
            option = f"--per {CLUSTERS}" if by_clusters else f"--within {TYPICAL}"
            raise InputError(
                f"{option} uses embeddings, and {table.path} has no column {EMBEDDING!r}; score the images with "
                "embeddings, or choose your own column with --embedding"
            )
        return Needs(
            names=() if by_clusters else (self.per,),
            numbers=(score.column,) if score else (),
            representations=EMBEDDINGS if self.by_embedding(table) else frozenset(),
        )


@dataclass(frozen=True)
class Amounts:
    """The numbers of rows from C cells.

    Attributes:
        taken: rows to keep of each cell, shape (C,), at most its size.
        quota: target rows of each cell for this total, shape (C,).
        limit: the cell with the fewest rows relative to its share.
        most: largest total that all cells can fulfil.
    """

    taken: Counts
    quota: Counts
    limit: int
    most: int

    @property
    def short(self) -> Counts:
        """Number of missing rows in each cell, shape (C,)."""
        return np.maximum(self.quota - self.taken, 0)

    @property
    def apart(self) -> float:
        """Total variation distance between actual and target shares, in [0, 1]."""
        total = max(1, int(self.taken.sum()))
        return float(np.abs(self.taken - self.quota).sum() / 2 / total)


def amounts(sizes: Counts, shares: Floats, total: int | None = None) -> Amounts:
    """Return the number of rows to keep of each cell, as close to the shares as integers allow.

    A cell with too few rows for its share is kept completely, and the others get more in proportion to their shares.

    Args:
        sizes: rows of each cell, shape (C,).
        shares: of each cell, shape (C,), >= 0, with sum 1; cells with a share have rows.
        total: total number of rows, at most the rows of cells with a share; None for the maximum that the shares allow.
    """
    requested = shares > 0
    room = np.full(len(sizes), np.inf)
    room[requested] = sizes[requested] / shares[requested]
    limit = int(room.argmin())
    most = int(np.floor(room[limit] * (1 + 1e-12)))
    while most and (apportioned(shares * most, most) > sizes).any():
        most -= 1  # rounding of shares such as a third
    total = most if total is None else total
    quotas = apportioned(shares * total, total)
    return Amounts(apportioned(_filled(sizes, shares, room, total), total), quotas, limit, most)


def apportioned(quotas: Floats, total: int) -> Counts:
    """Return integers that sum to ``total``: quotas rounded down, plus one for the largest remainders.

    Equal remainders go to the earlier cell. Quotas, shape (C,), are >= 0 and sum to ``total`` up to rounding.

    >>> apportioned(np.array([1.5, 1.25, 0.25]), 3).tolist()
    [2, 1, 0]
    """
    rounded = np.floor(quotas + 1e-9).astype(np.int64)
    missing = total - int(rounded.sum())
    order = np.argsort(-np.round(quotas - rounded, 9), kind="stable")
    rounded[order[:missing]] += 1
    return rounded


def _filled(sizes: Counts, shares: Floats, room: Floats, total: int) -> Floats:
    """Return min(size, level * share) of each cell, with the level at which they sum to ``total``."""
    order = np.argsort(room, kind="stable")
    full = np.cumsum(sizes[order]) - sizes[order]  # rows of the previous cells, which are kept completely
    open_share = shares.sum() - (np.cumsum(shares[order]) - shares[order])
    with np.errstate(divide="ignore", invalid="ignore"):
        level = (total - full) / open_share
    first = int(np.argmax(level <= room[order] * (1 + 1e-12)))
    filled: Floats = np.minimum(sizes, level[first] * shares)
    return filled


def planned(request: BalanceRequest, names: Sequence[str], sizes: NDArray[np.int64]) -> Amounts:
    """Return the number of rows to keep of each cell.

    Args:
        request: of the balance.
        names: of the C cells.
        sizes: rows of each, shape (C,), >= 1.

    Raises:
        InputError: for a class without rows, more rows than there are, or named shares that cannot be met.
    """
    shares = shares_in(request.alpha, request.shares, names, sizes, what=request.per)
    n = int(sizes[shares > 0].sum())
    total = None
    if request.rows is not None:
        amount = Amount.parse(request.rows, "--rows")
        total = amount.count if amount.count is not None else amount.of(n, up=False)
        if not 1 <= total <= n:
            of = "of the classes that are named" if request.shares else "that have a cell"
            raise InputError(f"--rows must be between 1 and the {counted(n, 'row')} {of}, got {total:,}; choose fewer")
    plan = amounts(sizes, shares, total)
    if total is None and not plan.taken.sum():
        raise InputError(
            f"no row can be kept with every share met: {names[plan.limit]} has {counted(int(sizes[plan.limit]), 'row')}"
            f" for {shares[plan.limit]:.3g} of all; choose how many with --rows"
        )
    if request.shares and plan.short.any() and not request.nearest:
        raise InputError(
            f"--rows {total:,} at these shares takes {_shortfall(names, sizes, plan)}; at most {plan.most:,} rows meet "
            "them (leave --rows out), or get as close as possible with --nearest"
        )
    return plan


def _shortfall(names: Sequence[str], sizes: NDArray[np.int64], plan: Amounts) -> str:
    """Return a message on the cells with too few rows, and how many are missing."""
    lacking = np.flatnonzero(plan.short)
    worst = lacking[np.argsort(-plan.short[lacking], kind="stable")]
    listed = ", ".join(
        f"{int(plan.quota[cell]):,} rows of {names[cell]!r}, of which there are {int(sizes[cell]):,}"
        for cell in worst[:N_NAMED].tolist()
    )
    more = f", and of {len(worst) - N_NAMED:,} more classes too many" if len(worst) > N_NAMED else ""
    return f"{listed}{more}: {int(plan.short.sum()):,} too few in all"
