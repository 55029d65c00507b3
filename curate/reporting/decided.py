"""Policies applied to a table, located from their files, and their decisions joined to the rows by key."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY, STATUS, URI
from curate.manifest.store_path import AnyPath, is_cleaned
from curate.policies.chain import Link, Searched, links, receipt_of
from curate.policies.decided import DROP, OUTCOMES
from curate.policies.receipts import (
    PIPELINE_RECEIPT,
    is_applied,
    lost_rows,
    read_pipeline_receipt,
    read_receipt,
    read_step,
)
from curate.reporting.columns import Dataset, Shown, shortened
from curate.reporting.options import Results
from curate.tables.digests import plain, shown_keys
from curate.tables.keys import key_hashes, places
from curate.tables.table import Table, open_table
from scoring.errors import InputError

RECEIPT = ".receipt.json"
MOST = 50  # maximal number of policies
MOST_REASONS = 50  # maximal number of reported reasons per policy


@dataclass(frozen=True)
class Applied:
    """A policy applied to a table, or to the subset of an earlier one.

    Attributes:
        name: of the policy.
        path: of its receipt.
        receipt: as read.
        decisions: the table next to it; None if missing.
        groups: groups of a deduplication; None if absent.
    """

    name: str
    path: AnyPath
    receipt: Mapping[str, Any]
    decisions: Table | None
    groups: Table | None

    @property
    def subset(self) -> AnyPath:
        """The path of its subset."""
        return self.path.with_name(self.receipt["outputs"]["subset"]["file"])

    @property
    def rules(self) -> list[dict[str, Any]]:
        """The requests, one per rule."""
        return [rule for rule in self.receipt["policy"] if isinstance(rule, dict)]

    def funnel(self) -> dict[str, Any]:
        """Counts of input rows, kept rows, and dropped rows by reason; they add up."""
        counts = self.receipt["counts"]
        lost = sorted(lost_rows(self.receipt), key=lambda reason: -reason[2])
        out = [{"reason": shortened(why), "decision": what, "n": n} for what, why, n in lost[:MOST_REASONS]]
        for decision in dict.fromkeys(what for what, _, _ in lost[MOST_REASONS:]):
            rest = [n for what, _, n in lost[MOST_REASONS:] if what == decision]
            out.append({"reason": f"{len(rest):,} other reasons", "decision": decision, "n": sum(rest)})
        return {
            "step": self.name,
            "file": self.subset.name,
            "rows_in": int(counts["n_rows"]),
            "kept": int(counts["kept"]),
            "out": out,
        }


def find_results(table: Table, paths: Results) -> list[Applied]:
    """Return the policies that wrote the given files, and their predecessors, in the order applied.

    Args:
        table: the input of the first policy.
        paths: subsets, decisions or receipts of policies, receipts of pipelines or their folders; one or several.

    Raises:
        InputError: for a file that no policy wrote, one that lacks its receipt, or more than ``MOST`` policies.
    """
    named = [paths] if isinstance(paths, str | Path) else paths or ()
    chains = [_chain(receipt.resolve(), table) for path in named for receipt in _receipts(Path(path))]
    order = {step.path.resolve(): step for steps in zip_longest(*chains) for step in steps if step is not None}
    if len(order) > MOST:
        raise InputError(f"expected the results of at most {MOST} policies, got more; pass fewer")
    depth = {step.path.resolve(): n for chain in chains for n, step in enumerate(reversed(chain))}
    steps_in_order = [order[path] for path in sorted(order, key=lambda path: depth[path])]
    return [
        Applied(step.policy, step.path, step.noted, _output(step, "decisions"), _output(step, "groups"))
        for step in steps_in_order
    ]


def _chain(receipt: AnyPath, table: Table) -> list[Link]:
    """Return a receipt and its predecessors up to the table, without calibrations."""
    read_receipt(receipt)  # refuses calibrations, which decide no rows
    steps = []
    for step in links(receipt, Searched(receipt.parent)):
        steps += [] if step.is_calibration else [step]
        if step.source is not None and step.source.resolve() == table.path.resolve():
            break
    return steps


def _receipts(path: Path) -> Iterable[AnyPath]:
    """Return the receipts for a path."""
    is_folder = path.is_dir() and not is_cleaned(path)
    if is_folder and not (path / PIPELINE_RECEIPT).is_file():
        raise InputError(f"expected what a policy wrote (NAME.parquet or NAME.receipt.json), got the folder {path}")
    if is_folder or path.name == PIPELINE_RECEIPT:
        folder = path if is_folder else path.parent
        for _, outputs in read_pipeline_receipt(folder / PIPELINE_RECEIPT):
            receipts = (folder / name for name in outputs if name.endswith(RECEIPT) and (folder / name).is_file())
            yield from (path for path in receipts if not is_applied(read_step(path)))
        return
    if not path.exists():
        raise InputError(f"{path} does not exist; pass a subset, its decisions or its receipt, as a policy wrote them")
    yield receipt_of(path)


def _output(step: Link, name: str) -> Table | None:
    """Return a table that a policy wrote, if it still exists."""
    file = step.output(name)
    required = [KEY, "decision"] if name == "decisions" else ()
    return open_table(file, require=required) if file is not None and file.is_file() else None


OPEN = len(OUTCOMES)  # the code of a row without a decision
NO_RULE = "no rule"
NOTED = {"rule": pl.String, "margin": pl.Float64, "threshold": pl.Float64}
NEEDED = (KEY, "decision", *NOTED)


@dataclass
class Decisions:
    """The M decisions of one policy, in the order of its file.

    Attributes:
        applied: the policy.
        row: rows of the table, shape (M,).
        outcome: codes of ``OUTCOMES``, shape (M,) uint8.
        rule: the deciding rule, shape (M,) int32, an index into ``rules``.
        rules: as typed.
        margin: signed distance of the score from the threshold, shape (M,); negative if dropped, NaN if absent.
        thresholds: lowest and highest threshold of each rule with thresholds.
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
        outcome: codes of ``OUTCOMES``, ``OPEN`` without a decision, shape (N,) uint8.
        by: index of the deciding policy, shape (N,) int16; -1 for none.
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

    Policies may be a sequence, or alternatives on the same table. A row that any policy drops counts as dropped by the
    last one that drops it; other rows have the decision of the last policy that read them.

    Args:
        dataset: the table.
        results: in the order applied; those without a file of decisions are skipped.

    Raises:
        InputError: for decisions on other rows, or that contradict their receipt.
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
    _refuse_other_rows(dataset, applied, row, outcome)
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


def _refuse_other_rows(dataset: Dataset, applied: Applied, row: NDArray[np.int64], outcome: NDArray[np.uint8]) -> None:
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


EXACT = 2**53  # whole numbers beyond are not exact in a browser


def row_values(dataset: Dataset, decided: Decided, columns: Sequence[Shown], rows: NDArray[np.int64]) -> dict[str, Any]:
    """Return rows as lists of plain JSON values, one per column.

    Args:
        dataset: the table.
        decided: the decisions on its rows.
        columns: to return.
        rows: indices, in the requested order.
    """
    table = dataset.table
    names = [name for name in (KEY, STATUS, URI) if name in table.schema.names]
    taken = table.take(rows, list(dict.fromkeys([*names, *(each.column for each in columns)])))
    keys = shown_keys(taken.column(KEY), table.path)
    answer: dict[str, Any] = {"n": len(rows), "row": rows.tolist(), "key": keys}
    if URI in names:
        answer["path"] = _texts(taken.column(URI))
    answer["status"] = _texts(taken.column(STATUS)) if STATUS in names else ["ok"] * len(rows)
    if decided.policies:
        answer["decision"] = [(*OUTCOMES, None)[code] for code in decided.outcome[rows].tolist()]
        answer["reason"] = [None if text is None else shortened(text) for text in decided.reasons(rows)]
    for each in columns:
        column = taken.column(each.column)
        answer[each.name] = json_numbers(column) if each.is_number else _texts(column)
    return answer


def json_numbers(column: pa.ChunkedArray) -> list[Any]:
    """Return numbers for JSON with as few digits as their precision needs; null for missing and infinite values."""
    array = plain(column.combine_chunks())
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64(), safe=False)
    if pa.types.is_integer(array.type):
        values = array.to_pylist()
        return [str(v) if v is not None and abs(v) > EXACT else v for v in values]
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    numbers = array.to_numpy(zero_copy_only=False)
    known = np.isfinite(numbers)
    short = numbers.tolist() if numbers.dtype == np.float64 else [float(text) for text in numbers.astype(str).tolist()]
    return [value if is_known else None for value, is_known in zip(short, known.tolist(), strict=True)]


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    array = plain(column.combine_chunks())
    try:
        values = array.cast(pa.large_string()).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        values = [None if value is None else str(value) for value in array.to_pylist()]
    return [None if value is None else shortened(value) for value in values]
