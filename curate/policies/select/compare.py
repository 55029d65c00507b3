"""Two batches of a round, one derived again: which rows are not as they were."""

from typing import Any

import numpy as np
import pyarrow as pa

from curate.columns import KEY
from curate.policies.arranged import unlike

PASSED_THROUGH = ("uri", "width", "height")  # the table's own, which nothing was chosen by
PLACE = "rank"


def compare_batches(now: pa.Table, then: pa.Table, *, as_written: bool) -> tuple[list[str], list[str]]:
    """Say which rows of a batch are not as derived, and what else is not.

    Args:
        now: as derived, each key once.
        then: on disk.
        as_written: whether the file is, byte for byte, what was written. Then other places or sizes of images are the
            table's new ones, and no difference.

    Returns:
        one text a row that differs, and one a finding that is no row.
    """
    if [(field.name, field.type) for field in now.schema] != [(field.name, field.type) for field in then.schema]:
        return [], ["the batch has other columns or types than what is chosen now"]
    keys, noted = now[KEY].to_pylist(), then[KEY].to_pylist()
    place = {key: at for at, key in enumerate(keys)}
    rows = np.array([place.get(key, -1) for key in noted], np.int64)
    changes: dict[Any, list[str]] = {key: ["not chosen then"] for key in keys if key not in set(noted)}
    for at, row in enumerate(rows.tolist()):
        if row < 0:
            changes[noted[at]] = ["not chosen now"]
        elif row != at:
            changes[noted[at]] = [f"number {row + 1:,} now, number {at + 1:,} then"]
    for name in now.schema.names:
        if name in (KEY, PLACE) or (as_written and name in PASSED_THROUGH):
            continue
        for at in unlike(now[name], then[name], rows).tolist():
            changes.setdefault(noted[at], []).append(f"another {name}")
    problems = [f"{len(noted) - len(set(noted)):,} rows are there twice"] if len(set(noted)) < len(noted) else []
    return [f"{key}: {', '.join(texts)}" for key, texts in changes.items()], problems
