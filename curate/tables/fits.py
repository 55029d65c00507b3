"""Warnings on rows whose scores were fitted separately: scores relative to different datasets are not comparable."""

import json
from collections.abc import Iterable

from curate.counted import counted
from curate.tables.provenance import noted_of
from curate.tables.table import Table
from scoring.relative.columns import CLASS
from scoring.relative.columns import COLUMNS as RELATIVE

# What ``curate score`` notes of a fit; a fit that notes more may have been applied to other rows.
OF_SCORING = {"rows", "images", "digest", "groups", "junk"}
JUDGED = "judged"  # rows that were added later, and judged by the fit as it was: on its scale, so not apart


def fitted_apart(table: Table, columns: Iterable[str]) -> list[str]:
    """Return a warning if rows of several fits are ranked by a score relative to a dataset.

    Args:
        table: one file, or parts that may come from several tables.
        columns: the ranking scores.
    """
    relative = [name for name in columns if name in RELATIVE or name == CLASS]
    if not relative:
        return []
    fits = {json.dumps(fit, sort_keys=True): fit for fit in (noted_of(file).get("fit") for file in table.files)}
    if len(fits) > 1:
        return [_words(table, relative[0], f"its parts have {len(fits)} different fits")]
    fit = next(iter(fits.values()), None)
    if not isinstance(fit, dict) or type(fit.get("rows")) is not int or not set(fit) <= OF_SCORING:
        return []
    n_scored = sum(len(part) - part.column(0).null_count for part in table.batches(relative[:1]))
    if n_scored <= fit["rows"]:
        return []
    return [_words(table, relative[0], f"{counted(n_scored, 'row')} with a value, and a fit of {fit['rows']:,}")]


def _words(table: Table, column: str, why: str) -> str:
    return (
        f"{table.path} holds rows that were fitted separately ({why}), and {column} is relative to the "
        f"rows it was fitted with: fit them together with curate fit {table.path} --apply NAME.parquet"
    )
