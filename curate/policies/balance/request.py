"""A request for a balance, checked against the table; also what the receipt records."""

from dataclasses import dataclass, field
from typing import ClassVar

from curate.columns import EMBEDDING
from curate.policies.balance.cells import CERTAIN, CLUSTERS, RANDOM, TYPICAL, WITHIN
from curate.policies.request import Request
from curate.tables.amount import Amount
from curate.tables.needs import EMBEDDINGS, Needs
from curate.tables.signals import Signal, default_column, signal
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.lookup import lookup


@dataclass(frozen=True)
class BalanceRequest(Request):
    """A balance, as requested.

    Fields are as in ``BalanceOptions``, but for these.

    Attributes:
        alpha: power of the size of a cell that its share uses: 0 uniform, 1 as it is.
        shares: class -> share, instead of the power; empty for none.
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
        """Return whether cells are clusters by k-means: if a number is given, or no column has the name."""
        return self.per == CLUSTERS and (self.clusters is not None or CLUSTERS not in table.schema.names)

    def by_embedding(self, table: Table) -> bool:
        """Return whether embeddings are used."""
        return self.within == TYPICAL or self.by_clusters(table)

    def signal(self, table: Table) -> Signal | None:
        """Return the score column and its direction; None if no score is requested.

        Raises:
            InputError: for a column that is missing or of no known direction, or where there is no score.
        """
        if self.within != CERTAIN:
            return None
        return signal(self.column or default_column(table), table, certain_first=True, flag="--column")

    def needs(self, table: Table) -> Needs:
        """Return the columns and facts to read of the table.

        Raises:
            InputError: for a column that is missing.
        """
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
