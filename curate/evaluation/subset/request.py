"""The request to measure a subset: test rows, number of random draws, and whether a network is trained."""

from dataclasses import dataclass
from pathlib import Path

from curate.tables.table import Table
from scoring.errors import InputError
from scoring.lookup import closest, name_list

SHARE = 0.2  # default held-out share of each class
MOST_SEEDS = 1000
MOST_STEPS = 100_000


@dataclass(frozen=True)
class TestSide:
    """Which rows are test rows; exactly one of the three is set.

    Attributes:
        share: of each class, drawn by a hash of the keys; 0 for none.
        column: whose ``value`` marks test rows.
        value: of that column, as text.
        table: a separate test table; None for rows of the same table.
    """

    __test__ = False  # not collected by pytest

    share: float = SHARE
    column: str = ""
    value: str = ""
    table: Path | None = None

    def words(self) -> str:
        """Return the request as typed."""
        if self.table is not None:
            return str(self.table)
        return f"{self.column}={self.value}" if self.column else f"{self.share:g} of each class"


def parse_test(text: str | None, table: Table) -> TestSide:
    """Parse the requested test rows: a share, COLUMN=VALUE or a table; InputError if invalid."""
    if text is None:
        return TestSide()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = float("nan")
    if share == share:
        if not 0 < share < 1:
            raise InputError(f"--test: expected a share between 0 and 1, got {text}; 0.2 is usual")
        return TestSide(share=share)
    if Path(text).exists() or text.endswith(".parquet"):
        return TestSide(0.0, table=Path(text))
    column, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--test: expected a share, COLUMN=VALUE or a table, got {text!r}; write --test split=test")
    if column not in table.schema.names:
        raise InputError(
            f"--test: {table.path} has no column {column!r}{closest(column, table.schema.names)} "
            f"(columns: {name_list(table.schema.names, column)})"
        )
    return TestSide(0.0, column, value.removeprefix("="))


@dataclass(frozen=True)
class SubsetSettings:
    """How a subset is measured.

    Attributes:
        seeds: number of random subsets of each kind, and of trainings of a network; >= 2.
        seed: of everything that is drawn.
        sample: maximum number of sampled rows; None for as many as take a minute or two.
        network: steps of the small network; 0 for none.
        device: that trains it.
    """

    seeds: int = 5
    seed: int = 0
    sample: int | None = None
    network: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        if not 2 <= self.seeds <= MOST_SEEDS:
            raise InputError(
                f"--seeds must be between 2 and {MOST_SEEDS:,}, got {self.seeds}: the spread of random subsets is "
                "measured; 5 is usual"
            )
        if not 0 <= self.seed < 2**31:
            raise InputError(f"--seed must be between 0 and 2^31 - 1, got {self.seed}; choose another")
        if self.sample is not None and self.sample < 100:
            raise InputError(f"--sample must be at least 100 rows for --subset, got {self.sample}; choose more")
        if not 0 <= self.network <= MOST_STEPS:
            raise InputError(f"--network must be between 0 and {MOST_STEPS:,} steps, got {self.network}; 400 is usual")
