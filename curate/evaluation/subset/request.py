"""The request to measure a subset: test rows, number of random draws, and whether a network is trained."""

from dataclasses import dataclass
from pathlib import Path

from curate.evaluation.options import EvaluateOptions
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.lookup import require_known
from scoring.settings import require_between, require_seed

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
    require_known(column, table.schema.names, f"--test: {table.path} has no column", "columns")
    return TestSide(0.0, column, value.removeprefix("="))


def check_amounts(options: EvaluateOptions) -> None:
    """Raise InputError for a number out of range."""
    require_between("--seeds", options.seeds, 2, MOST_SEEDS, "5 are usual, to measure the spread of random subsets")
    require_seed(options.seed)
    require_between("--sample", options.sample, 100, hint="choose more rows for --subset")
    require_between("--network", options.network, 0, MOST_STEPS, "400 steps are usual")
