"""What can become of a row under a policy."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import KEY

KEEP, DROP, UNDECIDED, FAILED = range(4)
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


def failures(status: pa.Array | None, error: pa.Array | None, rows: np.ndarray) -> list[str]:
    """Return the status and the error of rows that were not scored, as reasons."""
    if status is None or not len(rows):
        return []
    at = pa.array(rows)
    kinds = pc.fill_null(status.take(at), "no status").to_pylist()
    texts = error.take(at).to_pylist() if error is not None else [None] * len(rows)
    return [f"not scored: {kind}" + (f" ({text})" if text else "") for kind, text in zip(kinds, texts, strict=True)]
