"""JSON lines: one object per row with all columns."""

import json

import pyarrow as pa

from curate.columns import LABEL
from curate.exporting.contract import LINES, Format, Plan, lines_alone
from curate.exporting.parts import Part
from curate.exporting.rows import Rows, is_json, json_texts


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write one line per row."""
    columns = {each.name: json_texts(rows.table[each.name]) for each in rows.table.schema}
    columns["key"] = json_texts(pa.chunked_array([rows.keys], pa.string()))
    if plan.label is not None:
        columns[LABEL] = json_texts(pa.chunked_array([rows.labels], pa.string()))
    named = [f"{json.dumps(name, ensure_ascii=False)}: ".replace("%", "%%") for name in columns]
    line = f"{{{', '.join(f'{name}%s' for name in named)}}}\n"
    part.piece(LINES, "".join(line % values for values in zip(*columns.values(), strict=True)).encode())


JSONL = Format(
    part,
    lines_alone,
    takes=is_json,
    out="one JSON object a line: key, uri, `label`, all columns, embeddings among them",
    suffix=".jsonl",
    load=("import polars; data = polars.read_ndjson({out})",),
)
