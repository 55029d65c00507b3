"""Rows whose label is suspected, and images with an issue, as galleries."""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from curate.counted import counted
from curate.policies.issues.kinds import Kind, Values
from curate.policies.issues.policy import Issues, columns_of, values_of, worst_of
from curate.reporting.dataset import Dataset
from curate.reporting.decided import Decided
from curate.reporting.galleries import EACH, FLAT, MOST_GROUPS, Gallery, Group
from curate.reporting.results import Applied
from curate.tables.digests import plain
from curate.tables.needs import Needs
from curate.tables.rows import read_rows
from scoring.errors import InputError

LABELS, ISSUES = "labels", "issues"
PAIR = ("given_label", "suggested_label")


def of_labels(decided: Decided) -> list[Gallery]:
    """Return the rows whose label is suspected most, by the pair of given and suggested label, the worst pair first."""
    parts = [pl.DataFrame(schema={"row": pl.Int64, **dict.fromkeys(PAIR, pl.String)})]
    n_suspected = 0
    for policy in decided.policies:
        table = policy.applied.decisions
        if policy.applied.name != LABELS or table is None or not set(PAIR) <= set(table.schema.names):
            continue
        suspected = np.flatnonzero(policy.margin < 0)
        n_suspected += len(suspected)
        worst = suspected[np.argsort(policy.margin[suspected], kind="stable")[: 2 * FLAT]]
        texts = [plain(column.combine_chunks()).cast(pa.string()) for column in table.take(worst, PAIR).columns]
        parts.append(pl.DataFrame({"row": policy.row[worst], **dict(zip(PAIR, map(pl.Series, texts), strict=True))}))
    by_pair = pl.concat(parts).group_by(*PAIR, maintain_order=True).agg(pl.col("row").head(EACH))
    pairs = [Group(f"given {a}, suggested {b}", rows) for a, b, rows in by_pair.head(MOST_GROUPS).iter_rows()]
    words = f"the worst of {counted(n_suspected, 'suspected label')}, by what was given and what is suggested"
    return [Gallery("labels", "Suspected labels", words, groups=pairs)]


def of_issues(dataset: Dataset, results: Sequence[Applied]) -> list[Gallery]:
    """Return the worst images of every kind of issue; as a policy looked for them, where one of the results did."""
    groups = []
    for name, kind, values, has, cut in issues_in(dataset, results):
        rows = worst_of(kind, values, has, EACH)
        if len(rows):
            side = "below" if kind.low else "above"
            n = counted(int(has.sum()), "row")
            groups.append(Group(f"{name}: {kind.meaning} ({kind.name} {side} {cut:.4g}): {n}", rows.tolist()))
    return [Gallery("issues", "Images with an issue", "the worst of each kind", groups=groups)]


def issues_in(
    dataset: Dataset, results: Sequence[Applied]
) -> Iterator[tuple[str, Kind, Values, NDArray[np.bool_], float]]:
    """Yield every kind of issue with its measure, which rows have it, and where it begins.

    Kinds are looked for as a policy did, where one of the results is of one. A table without measures has no kind.

    Args:
        dataset: the table, N rows.
        results: of policies.
    """
    table = dataset.table
    receipts = [result for result in results if result.name == ISSUES]
    try:
        policy = Issues.from_receipt(receipts[-1].rules) if receipts else Issues()
        kinds, _ = policy.kinds_in(table)
    except InputError:
        return  # the table has no measures of quality
    for name, kind in kinds.items():
        names = columns_of({name: kind}, table)
        read = read_rows(table, Needs(exact=names, keys=False))
        columns = {each: values_of(read, each, dataset.ok) for each in names}
        looked = policy.look({name: kind}, columns, dataset.ok)
        yield name, kind, looked.measures[name], looked.has[name], looked.cuts[name]
