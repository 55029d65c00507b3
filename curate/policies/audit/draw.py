"""The number of images that reviewers must judge, and a simple random sample of the rows that could be kept."""

import hashlib
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curate.columns import KEY, is_less_certain
from curate.options.function import callable_of
from curate.policies.audit.options import ReviewPlanOptions
from curate.policies.audit.results import COLUMNS, MOST, AuditPlan, Goal, parse_goal, parse_share
from curate.policies.sampled import drawn_text, refuse_judged
from curate.statistics.guarantee import fewest_verdicts, verdicts_for_power
from curate.tables.amount import Amount
from curate.tables.digests import salted
from curate.tables.keys import keys_at
from curate.tables.needs import Needs, default_column
from curate.tables.rows import Rows, read_rows
from curate.tables.table import Table, open_table
from scoring.arrays import Array
from scoring.atomic import AtomicFile, refuse_existing, require_folder, sweep_outputs
from scoring.errors import InputError


@dataclass(frozen=True)
class Population:
    """Rows with a score, most certain first; ties are never split.

    Attributes:
        column: name of the score.
        ordered: the scores by descending certainty, shape (N,): ascending, negated if higher is more certain.
    """

    column: str
    ordered: Array

    @classmethod
    def of(cls, table_rows: Rows, column: str, inside: NDArray[np.bool_] | None = None) -> "Population":
        """Return the scored rows of a table, restricted to ``inside``, shape (N,), if given."""
        numbers = table_rows.exact[column]
        is_known = table_rows.ok & numbers.valid if inside is None else table_rows.ok & numbers.valid & inside
        return cls(column, np.sort(in_doubt(numbers.values[is_known], column)))

    def __len__(self) -> int:
        return len(self.ordered)

    def first(self, n: int) -> int:
        """Return the number of rows at least as certain as the n-th, n in [1, N]."""
        return int(np.searchsorted(self.ordered, self.ordered[n - 1], side="right"))

    def ranks(self, values: Array) -> NDArray[np.int64]:
        """Return the number of rows at least as certain as each value, shape (M,)."""
        return np.searchsorted(self.ordered, in_doubt(values, self.column), side="right").astype(np.int64)

    def value_at(self, rank: int) -> float:
        """Return the score at a rank from 1."""
        value = self.ordered[rank - 1]
        return float(value if is_less_certain(self.column) else -value)

    def snap(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the next higher ranks that split no ties."""
        return np.searchsorted(self.ordered, self.ordered[ranks - 1], side="right").astype(np.int64)


def in_doubt(values: Array, column: str) -> Array:
    """Return scores with a sign such that lower is more certain, in a signed type."""
    if is_less_certain(column):
        return values
    if np.issubdtype(values.dtype, np.integer):
        raise InputError(
            f"--column {column} holds whole numbers; an audit uses a score, a column of floating-point numbers"
        )
    return -values


POWER = 0.8  # of a single test; since several cuts share the error, the half passes in 55 to 60 % of cases (simulated)
EXPECTED_PART = 0.25  # assumed share of bad rows, relative to the rate
ENDING = ".audit.csv"


def run_review_plan(options: ReviewPlanOptions) -> AuditPlan:
    """Compute how many images must be judged to bound the share of bad ones, and draw them.

    The sample is a simple random one without replacement from the rows that could be kept. It is also one for every
    stricter cut, so the test of each cut is exact. Rows of equal score are never separated.

    Raises:
        InputError: for an unusable table, column, share or output, or too few rows for the requested bound.
    """
    goal = parse_goal(options.max_bad_rate, options.confidence)
    opened = open_table(options.table, require=[KEY, *([options.label] if options.label else [])])
    name = options.column or default_column(opened)
    rows = read_rows(opened, Needs(exact=(name,), advice="choose a score with --column"))
    population = Population.of(rows, name)
    if not len(population):
        raise InputError(f"{opened.path} has no scored row with a value of {name}; there is nothing to judge")
    among = population.first(max(1, Amount.parse(options.keep, "--keep").of(len(population), up=True)))
    guess = EXPECTED_PART * goal.rate if options.expected is None else parse_share(options.expected, "--expected")
    needed = _needed(among, goal, guess)
    n = _images(options.images, needed[guess], among, goal, guess)
    plan = AuditPlan(str(options.table), name, len(population), among, n, goal.rate, goal.confidence, needed)
    if options.out is None:
        return plan
    path = Path(options.out)
    if not path.name.endswith(ENDING) or path.name == ENDING:
        raise InputError(f"expected a name such as kept{ENDING} for what is to be judged, got {path}")
    sweep_outputs([path])
    refuse_judged([path], "review plan")
    refuse_existing(path, overwrite=options.overwrite)
    require_folder(path)
    values = rows.exact[name].values
    is_known = np.flatnonzero(rows.ok & rows.exact[name].valid)
    inside = is_known[population.ranks(values[is_known]) <= among]
    ties = salted(rows.hashes, options.seed)
    chosen = inside[np.argsort(ties[inside], kind="stable")[:n]]
    chosen = chosen[np.argsort([hashlib.blake2b(ties[row].tobytes()).digest() for row in chosen.tolist()])]
    lines = _lines(opened, chosen, values[chosen], population, among, options.label)
    with AtomicFile(path, overwrite=options.overwrite) as file:
        file.write(drawn_text(COLUMNS, lines))
    return replace(plan, csv=path)


review_plan = callable_of(ReviewPlanOptions, run_review_plan)


def _needed(among: int, goal: Goal, guess: float) -> dict[float, int | None]:
    half = max(among // 2, 1)

    def images(share: float) -> int | None:
        if share:
            n = verdicts_for_power(half, goal.rate, goal.confidence, expected=share, power=POWER)
        else:
            n = fewest_verdicts(half, goal.rate, goal.confidence)
        return None if n is None else min(ceil(n * among / half), among)  # of all, so many are in the half

    return {share: images(share) for share in sorted({0.0, guess, goal.rate / 2})}


def _images(typed: int | None, needed: int | None, among: int, goal: Goal, guess: float) -> int:
    if typed is not None and not 1 <= typed <= MOST:
        raise InputError(f"--images takes 1 to {MOST:,}, got {typed:,}; draw twice, with other seeds, for more")
    if typed is not None:
        return min(typed, among)
    if needed is None:
        raise InputError(
            f"no number of images shows a share of at most {goal.rate:.3g} where {guess:.3g} of the better half is bad;"
            " allow a higher --max-bad-rate, or expect fewer bad ones with --expected"
        )
    if needed > MOST:
        raise InputError(
            f"{needed:,} images would have to be judged, and a page holds at most {MOST:,}; allow a higher "
            "--max-bad-rate, a lower --confidence, or draw several files with --images and --seed"
        )
    return needed


def _lines(
    table: Table, rows: np.ndarray, values: np.ndarray, population: Population, among: int, label: str | None
) -> list[list[str]]:
    """Return the CSV lines: each image to judge, its position in the table, and its rank."""
    labels = [None] * len(rows) if label is None else table.take(rows, [label]).column(label).to_pylist()
    zone = [str(among), repr(population.value_at(among)), population.column]
    columns = (keys_at(table, rows), labels, values.tolist(), population.ranks(values).tolist())
    return [
        [f"{n} of {len(rows)}", str(key), "" if label is None else str(name), repr(float(value)), str(rank), *zone]
        for n, (key, name, value, rank) in enumerate(zip(*columns, strict=True), 1)
    ]
