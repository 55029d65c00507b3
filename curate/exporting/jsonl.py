"""JSON lines: one object per row with all columns."""

from curate.columns import LABEL
from curate.exporting.contract import LINES, Format, Plan, lines_alone
from curate.exporting.parts import Part
from curate.exporting.rows import Rows
from curate.manifest.text import to_json


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write one line per row."""
    labels = rows.labels
    for record, key, label in zip(rows.records(0, len(rows)), rows.keys, labels, strict=True):
        known = {LABEL: label} if plan.label is not None else {}
        part.piece(LINES, to_json({**record, "key": key, **known}, indent=None))


JSONL = Format(
    part,
    lines_alone,
    out="one JSON object a line: key, uri, `label`, all columns, embeddings among them",
    suffix=".jsonl",
    load=("import polars; data = polars.read_ndjson({out})",),
)
