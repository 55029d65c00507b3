"""Rows of a table as plain values by column, for listing, sorting and filtering."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY, STATUS, URI
from curate.policies.outcomes import OUTCOMES
from curate.reporting.columns import Shown
from curate.reporting.dataset import Dataset
from curate.reporting.decided import Decided
from curate.reporting.texts import shortened
from curate.tables.digests import key_bytes, plain

EXACT = 2**53  # whole numbers beyond are not exact in a browser


def row_values(dataset: Dataset, decided: Decided, columns: Sequence[Shown], rows: NDArray[np.int64]) -> dict[str, Any]:
    """Return rows as lists of plain JSON values, one per column.

    Args:
        dataset: the table.
        decided: what became of its rows.
        columns: to return.
        rows: numbers, in the order wanted.
    """
    table = dataset.table
    names = [name for name in (KEY, STATUS, URI) if name in table.schema.names]
    taken = table.take(rows, list(dict.fromkeys([*names, *(each.column for each in columns)])))
    keys = key_bytes(taken.column(KEY).combine_chunks(), table.path)
    answer: dict[str, Any] = {
        "n": len(rows),
        "row": rows.tolist(),
        "key": [key.decode("utf-8", "replace") for key in keys],
    }
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
