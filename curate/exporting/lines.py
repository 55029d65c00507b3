"""Lines without images: a JSON object per row with all columns, or a path per row for xargs and other programs."""

import json
import os

import pyarrow as pa

from curate.columns import LABEL
from curate.exporting.contract import LINES, Format, Plan, lines_alone
from curate.exporting.parts import Part
from curate.exporting.rows import Rows, is_json, json_texts
from scoring.errors import InputError


def json_part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write one line per row."""
    columns = {each.name: json_texts(rows.table[each.name]) for each in rows.table.schema}
    columns["key"] = json_texts(pa.chunked_array([rows.keys], pa.string()))
    if plan.label is not None:
        columns[LABEL] = json_texts(pa.chunked_array([rows.labels], pa.string()))
    named = [f"{json.dumps(name, ensure_ascii=False)}: ".replace("%", "%%") for name in columns]
    line = f"{{{', '.join(f'{name}%s' for name in named)}}}\n"
    part.piece(LINES, "".join(line % values for values in zip(*columns.values(), strict=True)).encode())


JSONL = Format(
    json_part,
    lines_alone,
    takes=is_json,
    out="one JSON object a line: key, uri, `label`, all columns, embeddings among them",
    suffix=".jsonl",
    load=("import polars; data = polars.read_ndjson({out})",),
)


def paths_part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write the path of each row, absolute and byte for byte, or its URL.

    Raises:
        InputError: for a row without either, or whose path contains the entry separator.
    """
    end = b"\0" if plan.null else b"\n"
    for item in rows.items:
        place = item.path if item.path is None else os.path.abspath(item.path)  # noqa: PTH100 (a bytes path)
        place = place if place is not None else (item.url or "").encode()
        if not place:
            got = "none" if item.uri is None else "a member of a tar file"
            raise InputError(f"paths: expected a file or a URL for {item.key!r}, got {got}; export to a folder first")
        if end in place:
            advice = "leave --null out" if plan.null else "end each with a NUL by --null, for xargs -0"
            raise InputError(f"paths: the path of {item.key!r} holds what ends an entry; {advice}")
        part.piece(LINES, place + end)


PATHS = Format(
    paths_part,
    lines_alone,
    out="the path or URL of each image, one a line; with `--null` a NUL ends each, for `xargs -0`",
    suffix=".txt",
    load=("data = open({out}, newline='', errors='surrogateescape').read().split({end})[:-1]",),
)
