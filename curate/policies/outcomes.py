"""The possible outcomes of a row under a policy."""

import numpy as np
import pyarrow as pa

from curate.columns import KEY

KEEP, DROP, UNDECIDED, FAILED = range(4)
Row = tuple[pa.Array, pa.Array | None, pa.Array | None]  # keys (M,), status (M,) or None, error (M,) or None
OUTCOMES = ("keep", "drop", "undecided", "failed")  # by the codes above, as they are in the decisions


DECISION_SCHEMA = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False),
        pa.field("decision", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("rule", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("margin", pa.float64()),
    ]
)


def decision_rows(
    schema: pa.Schema, row: Row, outcome: np.ndarray, reason: np.ndarray, **columns: pa.Array
) -> pa.RecordBatch:
    """Return M rows of decisions.

    Args:
        schema: of the decisions; missing columns are null.
        row: key, status and error of each.
        outcome: codes of ``OUTCOMES``, shape (M,).
        reason: texts, shape (M,); replaced by the failure for rows that were not scored.
        columns: other columns of the decisions, by name.
    """
    keys, status, error = row
    failed = np.flatnonzero(outcome == FAILED)
    reason[failed] = failures(status, error, failed) or "not scored"
    known = {KEY: keys, "decision": pa.array(OUTCOMES).take(pa.array(outcome)), "reason": pa.array(reason, pa.string())}
    known |= columns
    arrays = [known[each.name] if each.name in known else pa.nulls(len(keys), each.type) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def failures(status: pa.Array | None, error: pa.Array | None, rows: np.ndarray) -> list[str]:
    """Return the status and the error of rows that were not scored, as reasons."""
    if status is None or not len(rows):
        return []
    at = pa.array(rows)
    kinds = status.take(at).to_pylist()
    texts = error.take(at).to_pylist() if error is not None else [None] * len(rows)
    return [
        f"not scored: {'no status' if kind is None else kind}" + (f" ({text})" if text else "")
        for kind, text in zip(kinds, texts, strict=True)
    ]
