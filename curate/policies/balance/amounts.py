"""The request of a balance, its target shares (from ``--to`` or a file), and the number of rows to keep per cell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.columns import EMBEDDING
from curate.counted import counted, listed
from curate.manifest.store_path import path_on_disk
from curate.manifest.text import read_bytes, read_json
from curate.manifest.text_tables import MAX_TABLE_BYTES, read_csv
from curate.policies.balance.options import To
from curate.policies.contract import Request
from curate.tables.amount import Amount
from curate.tables.needs import EMBEDDINGS, Needs, Signal, default_column, signal
from curate.tables.rows import Codes
from curate.tables.table import Table
from scoring.arrays import Floats
from scoring.errors import InputError
from scoring.lookup import closest, lookup, name_list

CERTAIN, TYPICAL, RANDOM = "certain", "typical", "random"
WITHIN = {
    CERTAIN: "the most certain by a score",
    TYPICAL: "those with the nearest neighbours in their cell",
    RANDOM: "drawn by the hash of the key",
}
CLUSTERS = "clusters"
USUAL_CLUSTERS = 100
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
        return np.asarray(np.maximum(self.quota - self.taken, 0))

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
        lacking = np.flatnonzero(plan.short)
        worst = lacking[np.argsort(-plan.short[lacking], kind="stable")]
        lacks = ", ".join(
            f"{int(plan.quota[cell]):,} rows of {names[cell]!r}, of which there are {int(sizes[cell]):,}"
            for cell in worst[:N_NAMED].tolist()
        )
        more = f", and of {len(worst) - N_NAMED:,} more classes too many" if len(worst) > N_NAMED else ""
        raise InputError(
            f"--rows {total:,} at these shares takes {lacks}{more}: {int(plan.short.sum()):,} too few in all; at most "
            f"{plan.most:,} rows meet them (leave --rows out), or get as close as possible with --nearest"
        )
    return plan


NAMED = {"uniform": 0.0, "square-root": 0.5}  # exponent of the cell sizes
FILES = (".csv", ".json")
SHARE = "share"
ROUNDING = 1e-3  # accepts three times 33.3 %
HOW = f"{', '.join(NAMED)}, a file of classes and shares ({', '.join(FILES)}), or CLASS=SHARE for each class"


def target_of(to: To, alpha: float | None) -> tuple[float, dict[str, float]]:
    """Return the power of the sizes, and the share of each named class, which takes precedence.

    Args:
        to: as typed, once or more; a mapping class -> share; None for uniform.
        alpha: the power; None for none.

    Raises:
        InputError: for an invalid value, or shares that do not sum to 1.
    """
    texts = [] if to is None else [str(to)] if isinstance(to, str | Path) else to
    if alpha is not None:
        if len(texts):
            raise InputError("--alpha and --to both set the target; leave one of them out")
        if not 0 <= alpha <= 1:
            raise InputError(f"--alpha must be from 0 (uniform) to 1 (as it is), got {alpha:g}; 0.5 is the square root")
        return alpha, {}
    if isinstance(texts, Mapping):
        return 0.0, _checked_sum({str(name): _share(str(name), str(share)) for name, share in texts.items()})
    if not texts:
        return NAMED["uniform"], {}
    if len(texts) == 1 and texts[0] in NAMED:
        return NAMED[texts[0]], {}
    if len(texts) == 1 and Path(texts[0]).suffix.lower() in FILES and "=" not in Path(texts[0]).name:
        return 0.0, _checked_sum(_read(path_on_disk(texts[0], "--to")))
    return 0.0, _checked_sum(_typed(texts))


def shares_in(
    alpha: float, named: Mapping[str, float], names: Sequence[str], sizes: NDArray[np.int64], *, what: str
) -> NDArray[np.float64]:
    """Return the share of each cell, shape (C,), with sum 1; InputError for a named class without rows.

    Args:
        alpha: power of the sizes, used if no shares are named.
        named: class -> share.
        names: of the cells.
        sizes: rows of each, shape (C,), >= 1.
        what: name of the cells in messages.
    """
    if not named:
        weight = sizes.astype(np.float64) ** alpha
        return np.asarray(weight / weight.sum())
    place = {name: at for at, name in enumerate(names)}
    unknown = [name for name in named if name not in place and named[name] > 0]
    if unknown:
        more = f" (and {len(unknown) - 1:,} more)" if len(unknown) > 1 else ""
        raise InputError(
            f"no row has the {what} {unknown[0]!r}{more}, of which {named[unknown[0]]:.4g} was requested"
            f"{closest(unknown[0], names)} ({what}: {listed(names, 10)})"
        )
    shares = np.zeros(len(names))
    for name, share in named.items():
        if share > 0:
            shares[place[name]] = share
    return shares


def _typed(texts: Sequence[str]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for text in texts:
        name, sign, share = text.rpartition("=")
        if not sign or not name:
            raise InputError(f"--to takes {HOW}, got {text!r}{closest(text, NAMED)}")
        if name in shares:
            raise InputError(f"--to has two shares of {name!r}; keep one")
        shares[name] = _share(name, share)
    return shares


def _read(path: Path) -> dict[str, float]:
    pairs: list[tuple[str, str]]
    if path.suffix.lower() == ".json":
        read = read_json(path, what='shares like {"cat": 0.3, "dog": 0.7}', most=MAX_TABLE_BYTES)
        if not isinstance(read, dict):
            raise InputError(f'{path} is not a JSON object; write shares like {{"cat": 0.3, "dog": 0.7}}')
        pairs = [(str(name), str(share)) for name, share in read.items()]
    else:
        data = read_bytes(path, what="text with shares", most=MAX_TABLE_BYTES)
        table = read_csv(data, str(path), expects={SHARE})
        names = [name for name in table.schema.names if name != SHARE]
        if SHARE not in table.schema.names or len(names) != 1:
            raise InputError(
                f"expected two columns in {path}, classes and {SHARE!r}, got {name_list(table.schema.names)}; "
                "remove the others"
            )
        columns = table.column(names[0]).to_pylist(), table.column(SHARE).to_pylist()
        pairs = [(str("" if name is None else name), str(share)) for name, share in zip(*columns, strict=True)]
    shares: dict[str, float] = {}
    for name, share in pairs:
        if name in shares:
            raise InputError(f"{path} has two shares of {name!r}; keep one")
        shares[name] = _share(name, share)
    return shares


def _share(name: str, text: str) -> float:
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError(f"the share of {name!r} must be from 0 to 1, or 0% to 100%, got {text[:40]!r}")
    return share


def _checked_sum(shares: dict[str, float]) -> dict[str, float]:
    total = sum(shares.values())
    if abs(total - 1) > ROUNDING:
        off = f"{(total - 1) * 100:.4g}% too much" if total > 1 else f"{(1 - total) * 100:.4g}% is missing"
        raise InputError(f"the shares of {len(shares):,} classes sum to {total * 100:.4g}%, expected 100%: {off}")
    return {name: share / total for name, share in shares.items()}
