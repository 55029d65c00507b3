"""Which rows of a table are in a subset: by its keys, a policy's decisions, or a list."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY
from curate.counted import counted
from curate.tables.digests import key_array, plain, tie_breaks
from curate.tables.keys import check_unique, key_hashes
from curate.tables.known import TEXT_SUFFIXES, read_known
from curate.tables.rows import Rows
from curate.tables.spelling import spelled_as
from curate.tables.table import Table, open_table
from scoring.errors import InputError

DECISIONS = frozenset({"decision", "reason", "rule"})  # what a file of decisions has in addition to keys
KEEP = "keep"


def kept_rows(path: str | Path, table: Table, rows: Rows) -> tuple[NDArray[np.bool_], int]:
    """Return which rows of a table are in a subset, shape (N,), and the size of the subset.

    Args:
        path: a table of the kept rows, the decisions of a policy over all, or a CSV, TSV or JSON lines file of keys.
        table: that it is of.
        rows: of the table, in the order of the hashes of their keys.

    Raises:
        InputError: for keys that the table has not, or a subset without rows.
    """
    path = Path(path)
    if path.suffix.lower() in TEXT_SUFFIXES:
        hashes = spelled_as(read_known(path, labels=False), table).hashes
    else:
        opened = open_table(path, require=[KEY])
        if set(opened.schema.names) >= DECISIONS:
            hashes = np.concatenate([np.zeros(0, np.uint64), *map(_kept_of, opened.batches([KEY, "decision"]))])
        else:
            hashes = key_hashes(opened)
            check_unique(opened, hashes)
    if not len(hashes):
        raise InputError(f"--subset: expected kept rows in {path}, got none; an empty subset cannot be trained on")
    place = rows.find(hashes)
    lost = int((place < 0).sum())
    if lost:
        raise InputError(
            f"--subset: expected rows of {table.path}, got {counted(lost, 'key')} in {path} of {len(hashes):,} that it "
            "does not have; pass the table that the subset was made from"
        )
    kept = np.zeros(len(rows), bool)
    kept[place] = True
    return kept, int(kept.sum())


def _kept_of(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    stays = pc.equal(plain(batch.column("decision")), KEEP)
    return np.asarray(tie_breaks(key_array(batch.column(KEY).filter(stays))), np.uint64)
