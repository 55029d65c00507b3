"""Decisions of policies joined to the rows of a table by key; a drop takes precedence."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY
from curate.policies.outcomes import DROP, OUTCOMES
from curate.reporting.dataset import Dataset
from curate.reporting.results import Applied
from curate.tables.digests import plain
from curate.tables.keys import key_hashes, places
from scoring.errors import InputError

OPEN = len(OUTCOMES)  # the code of a row that nothing decided
NO_RULE = "no rule"
NOTED = {"rule": pl.String, "margin": pl.Float64, "threshold": pl.Float64}
NEEDED = (KEY, "decision", *NOTED)


@dataclass
class Decisions:
    """The M decisions of one policy, in the order of its file.

    Attributes:
        applied: the policy.
        row: of the table, shape (M,).
        outcome: codes of ``OUTCOMES``, shape (M,) uint8.
        rule: which decided, shape (M,) int32, a place in ``rules``.
        rules: as typed.
        margin: of the score to the rule's threshold, shape (M,); negative was dropped, NaN if absent.
        thresholds: lowest and highest of each rule that has any.
    """

    applied: Applied
    row: NDArray[np.int64]
    outcome: NDArray[np.uint8]
    rule: NDArray[np.int32]
    rules: list[str]
    margin: NDArray[np.float64]
    thresholds: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass
class Decided:
    """The decisions on the N rows of a table.

    Attributes:
        outcome: codes of ``OUTCOMES``, ``OPEN`` where nothing decided, shape (N,) uint8.
        by: whose decision that is, shape (N,) int16; -1 for none.
        policies: with decisions, in the order applied.
    """

    outcome: NDArray[np.uint8]
    by: NDArray[np.int16]
    policies: list[Decisions]

    def reasons(self, rows: NDArray[np.int64]) -> list[str | None]:
        """Return the reason for the decision on each row; None without a decision."""
        texts = np.full(len(rows), None, object)
        for number, decisions in enumerate(self.policies):
            mine = np.flatnonzero(self.by[rows] == number)
            if len(mine) and decisions.applied.decisions is not None:
                at = places(rows[mine], decisions.row)
                texts[mine] = decisions.applied.decisions.take(at, ["reason"]).column(0).to_pylist()
        reasons: list[str | None] = texts.tolist()
        return reasons


def decide_all(dataset: Dataset, results: Sequence[Applied]) -> Decided:
    """Join the decisions of policies to the rows of a table.

    Policies may follow one another or stand side by side on one table. A row that any of them drops is dropped, by the
    last that drops it; any other row has the decision of the last that saw it.

    Args:
        dataset: the table.
        results: in the order applied; those whose decisions are gone are passed over.

    Raises:
        InputError: for decisions of other rows than the table's, or that contradict their receipt.
    """
    decided = Decided(np.full(dataset.n, OPEN, np.uint8), np.full(dataset.n, -1, np.int16), [])
    for applied in results:
        if applied.decisions is None:
            continue
        policy = _read(dataset, applied)
        counts = (policy.outcome == DROP) | (decided.outcome[policy.row] != DROP)
        decided.outcome[policy.row[counts]] = policy.outcome[counts]
        decided.by[policy.row[counts]] = len(decided.policies)
        decided.policies.append(policy)
    return decided


def _read(dataset: Dataset, applied: Applied) -> Decisions:
    table = applied.decisions
    if table is None:
        raise ValueError("a policy without decisions")
    table.require(NEEDED)
    parts = [pl.DataFrame(schema={"outcome": pl.UInt8, **NOTED})]
    for batch in table.batches(NEEDED[1:]):
        values = {name: pl.Series(plain(batch.column(name))).cast(kind) for name, kind in NOTED.items()}
        parts.append(pl.DataFrame({"outcome": _outcomes(applied, batch.column("decision")), **values}))
    noted = pl.concat(parts).with_columns(pl.col("margin", "threshold").fill_nan(None))
    row, outcome = dataset.find(key_hashes(table)), noted["outcome"].to_numpy()
    _refuse_strangers(dataset, applied, row, outcome)
    low, high = pl.col("threshold").min().alias("low"), pl.col("threshold").max().alias("high")
    rules = noted.group_by("rule", maintain_order=True).agg(low, high).with_row_index("code")
    code = noted.select("rule").join(rules, on="rule", how="left", nulls_equal=True, maintain_order="left")["code"]
    rules = rules.with_columns(pl.col("rule").fill_null(NO_RULE))
    bounds = {name: (least, most) for _, name, least, most in rules.iter_rows() if least is not None}
    margin = noted["margin"].to_numpy()
    return Decisions(applied, row, outcome, code.cast(pl.Int32).to_numpy(), rules["rule"].to_list(), margin, bounds)


def _outcomes(applied: Applied, column: pa.Array) -> pl.Series:
    words = pl.Series(plain(column).cast(pa.string()), dtype=pl.String)
    unknown = words.filter(~words.is_in(OUTCOMES))
    if len(unknown) or words.null_count():
        raise InputError(
            f"{applied.path}: its decisions hold {unknown[:1].to_list() or 'null'}, which is not a decision; "
            "restore it from a backup"
        )
    return words.replace_strict(OUTCOMES, range(len(OUTCOMES)), return_dtype=pl.UInt8)


def _refuse_strangers(dataset: Dataset, applied: Applied, row: NDArray[np.int64], outcome: NDArray[np.uint8]) -> None:
    path = applied.subset.with_name(applied.receipt["outputs"]["decisions"]["file"])
    strangers = int((row < 0).sum())
    if strangers:
        raise InputError(
            f"{path} does not belong to {dataset.table.path}: {strangers:,} of its {len(row):,} rows are not in the "
            "table; pass the table that was decided on, or leave the file out"
        )
    if len(np.unique(row)) < len(row):
        raise InputError(f"{path} decides a row twice; restore it from a backup")
    counts = applied.receipt["counts"]
    counted = [counts[name] for name in ("kept", "dropped", "undecided", "failed")]
    if np.bincount(outcome, minlength=len(OUTCOMES)).tolist() != counted:
        raise InputError(
            f"{path} and {applied.path.name} are from different runs: their counts differ; restore both from a backup"
        )
