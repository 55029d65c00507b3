"""Leaks by name: which rows of a table are in another one too, and as which of its rows."""

import csv
import io

import numpy as np

from curate.manifest.text import guarded
from curate.policies.dedup.decide import Duplicates
from curate.policies.dedup.request import DedupRequest
from curate.policies.dedup.words import how_matched
from curate.tables.keys import keys_at
from curate.tables.table import Table

LEAKS = "leaks"  # the file that names them
COLUMNS = ("table", "key", "other_table", "other_key", "finder", "similarity", "how")


def leaks_csv(table: Table, against: Table, duplicates: Duplicates, request: DedupRequest) -> bytes:
    """Return every leak as a line of CSV, in the order of the table; text that a spreadsheet would run is guarded.

    Args:
        table: that was deduplicated.
        against: the other table.
        duplicates: as decided.
        request: what counts as the same.
    """
    foreign = duplicates.foreign
    rows = np.flatnonzero(duplicates.leaks)
    views = [view.name for view in request.views()]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    named = zip(rows.tolist(), keys_at(table, rows), keys_at(against, foreign.owner[rows]), strict=True)
    for row, key, other_key in named:
        name, similarity = foreign.names[foreign.finder[row]], float(foreign.similarity[row])
        how = how_matched(duplicates, foreign, row, views)
        places = (guarded(str(each)) for each in (table.path, key, against.path, other_key))
        writer.writerow([*places, name, f"{similarity:.6g}", how])
    return text.getvalue().encode("utf-8" if text.getvalue().isascii() else "utf-8-sig")
