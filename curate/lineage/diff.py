"""Two subsets, or two receipts, compared by row, value and setting."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from curate.columns import KEY
from curate.lineage.diff_rows import (
    N_NAMED,
    NOTED,
    WHY,
    SharedRows,
    Values,
    compare_decisions,
    compare_values,
    shared_rows,
    why_missing,
)
from curate.lineage.options import DiffOptions
from curate.manifest.store_path import AnyPath, path_to_read, subset_at
from curate.options.function import callable_of
from curate.options.values import several
from curate.policies.chain import Link, Searched, links, receipt_of
from curate.policies.findings import VerificationResult
from curate.policies.receipts import receipt_beside
from curate.tables.digests import is_text
from curate.tables.keys import named
from curate.tables.table import Table, open_table
from curate.tables.writer import TableWriter
from scoring.errors import InputError

MANY = 16  # characters of a digest shown
ONLY_FIRST, ONLY_SECOND = "first", "second"
SCHEMA = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False),
        pa.field("only_in", pa.string(), nullable=False),
        pa.field("step", pa.int32()),
        *(pa.field(name, pa.string()) for name in WHY),
    ]
)
MEANINGS = {
    "only_in": "which of the two tables holds the row: first or second",
    "step": "the step, from 1, of the other subset that dropped it; null if no step read it",
    "policy": "of that step",
    "decision": "of that step: drop, undecided or failed",
    "reason": "the decision in words",
    "rule": "the rule that decided, as typed",
}
WRITTEN_AT_ONCE = 65_536


@dataclass(frozen=True)
class Setting:
    """A setting in which two chains differ.

    Attributes:
        step: number and policy, such as ``2 filter``.
        name: of the setting.
        first: value in the first chain; None if absent.
        second: value in the second chain; None if absent.
    """

    step: str
    name: str
    first: Any
    second: Any


def compare_settings(first: Sequence[Link], second: Sequence[Link]) -> list[Setting]:
    """Return the differing options and inputs of the steps of two chains, without file paths and names.

    Both chains start at the scored table.
    """
    settings: list[Setting] = []
    names = [step.policy for step in first], [step.policy for step in second]
    for kind, a, b, c, d in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        if kind == "equal":
            for n, (old, new) in enumerate(zip(first[a:b], second[c:d], strict=True)):
                left, right = (dict(_facts(link, is_first=a + n == 0)) for link in (old, new))
                differing = [each for each in dict.fromkeys((*left, *right)) if left.get(each) != right.get(each)]
                step = f"{a + n + 1} {old.policy}"
                settings += [Setting(step, name, left.get(name), right.get(name)) for name in differing]
            continue
        settings += [Setting(f"{n + 1} {names[0][n]}", "step", names[0][n], None) for n in range(a, b)]
        settings += [Setting(f"{n + 1} {names[1][n]}", "step", None, names[1][n]) for n in range(c, d)]
    return settings


def _facts(link: Link, *, is_first: bool) -> Iterator[tuple[str, Any]]:
    """Yield the compared facts of a receipt: the input of a later step is the output of the step before."""
    noted = link.noted
    if is_first:
        yield "rows of the input", noted["input"].get("n_rows")
        yield "input", str(noted["input"].get("digest", ""))[:MANY]
        model = noted.get("model")
        if isinstance(model, Mapping):
            yield "model", model.get("method")
            yield "weights", str(model.get("digest", ""))[:MANY]
    if link.is_calibration:
        calibration = noted.get("calibration")
        yield "calibration", str(calibration.get("digest", ""))[:MANY] if isinstance(calibration, Mapping) else None
    rules = [rule for rule in noted.get("policy", ()) if isinstance(rule, Mapping)]
    for number, rule in enumerate(rules, 1):
        yield from ((f"rule {number}, {name}", value) for name, value in _flatten(rule) if not name.endswith("path"))
    yield "curate", noted.get("curate")
    about = noted.get("environment")
    if isinstance(about, Mapping):
        yield from ((name, value) for name, value in _flatten(about) if name != "platform")


def _flatten(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of nested objects under its path."""
    for name, each in value.items():
        if isinstance(each, Mapping):
            yield from _flatten(each, f"{before}{name}.")
        else:
            yield f"{before}{name}", each


@dataclass
class Missing:
    """Rows that only one table has, or that are decided differently.

    Attributes:
        rows: number of these rows.
        why: number of rows by the other chain's decision, or by both decisions, most frequent first.
        named: key and reason of the first rows.
    """

    rows: int
    why: dict[str, int] = field(default_factory=dict)
    named: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Diff(VerificationResult):
    """The differences of two tables.

    Attributes:
        tables: their paths.
        rows: number of rows of each.
        in_both: number of rows whose key is in both.
        only_first: rows missing in the second, and why.
        only_second: rows missing in the first, and why.
        same_order: whether the shared rows are in the same order.
        columns: differing columns: name -> type in the first and in the second, None if missing.
        values: differing values of shared rows.
        decisions: shared rows whose decision, rule or reason differs, if both tables have them.
        settings: differing options of the steps.
        steps: policies that led to each, from the scored table.
    """

    tables: tuple[str, str]
    rows: tuple[int, int]
    in_both: int
    only_first: Missing
    only_second: Missing
    same_order: bool
    columns: dict[str, tuple[str | None, str | None]]
    values: Values
    settings: list[Setting]
    steps: tuple[list[str], list[str]]
    decisions: Missing = field(default_factory=lambda: Missing(0))

    @property
    def identical(self) -> bool:
        """Whether both have the same rows in the same order, columns and values, however they were made."""
        rows = not self.only_first.rows and not self.only_second.rows and self.same_order
        return rows and not self.columns and not self.values.rows and not self.decisions.rows


def run_diff(options: DiffOptions) -> Diff:
    """Compare two subsets by row, value and setting.

    Raises:
        InputError: for a table or receipt that is missing or damaged, or a key that a table has twice.
    """
    roots = several(options.root)
    if options.out is not None and Path(options.out).suffix != ".parquet":
        raise InputError(f"expected a name that ends in .parquet for the rows that differ, got {options.out}")
    (first, first_steps), (second, second_steps) = (
        _table_and_steps(path_to_read(path), roots) for path in (options.table, options.other)
    )
    shared = shared_rows(first, second)
    columns = _columns(first, second)
    alike = [name for name in first.schema.names if name in second.schema.names and name not in columns and name != KEY]
    decided = set(NOTED) <= {name for name in alike if is_text(first.schema.field(name).type)}
    alike = [name for name in alike if not decided or name not in NOTED]
    why = tuple(
        why_missing(shared.hashes[n][shared.only[n]], steps) for n, steps in enumerate((second_steps, first_steps))
    )
    result = Diff(
        tables=(str(first.path), str(second.path)),
        rows=(first.n_rows, second.n_rows),
        in_both=len(shared.pairs),
        only_first=_missing(first, shared, 0, why[0], second_steps),
        only_second=_missing(second, shared, 1, why[1], first_steps),
        same_order=shared.in_order,
        columns=columns,
        values=compare_values(first, second, shared, alike),
        settings=compare_settings(first_steps, second_steps),
        steps=([step.policy for step in first_steps], [step.policy for step in second_steps]),
        decisions=Missing(*compare_decisions(first, second, shared)) if decided else Missing(0),
    )
    if options.out is not None:
        _write(Path(options.out), (first, second), shared, (why[0], why[1]), overwrite=options.overwrite)
    return result


diff = callable_of(DiffOptions, run_diff)


def _table_and_steps(path: AnyPath, roots: Sequence[str | Path]) -> tuple[Table, list[Link]]:
    """Return the subset at a path, and the steps that led to it."""
    path = subset_at(path)
    if path.suffix != ".json" and not (path.is_file() and receipt_beside(path).is_file()):
        return open_table(path, require=[KEY]), []
    steps = list(links(receipt_of(path), Searched(path.parent, tuple(map(Path, roots)))))[::-1]
    return steps[-1].open(steps[-1].written), steps


def _columns(first: Table, second: Table) -> dict[str, tuple[str | None, str | None]]:
    kinds = [{each.name: str(each.type) for each in table.schema} for table in (first, second)]
    names = dict.fromkeys((*kinds[0], *kinds[1]))
    types = {name: (kinds[0].get(name), kinds[1].get(name)) for name in names}
    return {name: pair for name, pair in types.items() if pair[0] != pair[1]}


def _missing(table: Table, shared: SharedRows, side: int, why: pl.DataFrame, steps: Sequence[Link]) -> Missing:
    step, rule = (
        pl.col("step"),
        pl.when(pl.col("rule") != "").then(pl.concat_str(pl.lit(", "), "rule")).otherwise(pl.lit("")),
    )
    became = pl.col("decision").replace({"drop": "dropped"})
    line = pl.format("{} by step {}, {}{}", became, step, "policy", rule)
    lines = why.select(line=pl.when(step.is_null()).then(pl.lit(_no_step_reason(steps))).otherwise(line))
    counts = lines.group_by("line", maintain_order=True).len().sort("len", descending=True, maintain_order=True)
    rows = shared.only[side]
    keys = named(table, rows[:N_NAMED]) if len(rows) else []
    reasons = [reason or _no_step_reason(steps) for reason in why["reason"][: len(keys)]]
    return Missing(len(rows), dict(counts.iter_rows()), list(zip(keys, reasons, strict=True)))


def _no_step_reason(steps: Sequence[Link]) -> str:
    return "not in what its first step read" if steps else "no receipt says why"


def _write(
    out: Path,
    tables: tuple[Table, Table],
    shared: SharedRows,
    why: tuple[pl.DataFrame, pl.DataFrame],
    *,
    overwrite: bool,
) -> None:
    """Write every row that only one of the tables has."""
    described = {name: {"meaning": words} for name, words in MEANINGS.items()}
    meta = {"kind": "rows that differ", "tables": [str(table.path) for table in tables], "columns": described}
    with TableWriter(out, SCHEMA, meta, overwrite=overwrite) as writer:
        for side, only_in in enumerate((ONLY_FIRST, ONLY_SECOND)):
            rows = shared.only[side]
            for start in range(0, len(rows), WRITTEN_AT_ONCE):
                part = slice(start, start + WRITTEN_AT_ONCE)
                lines = why[side][part].with_columns(
                    pl.Series(KEY, named(tables[side], rows[part])), only_in=pl.lit(only_in)
                )
                writer.write(lines.select(SCHEMA.names).to_arrow().cast(SCHEMA))
