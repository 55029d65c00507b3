"""CSV: one row per image with an empty column `label` to fill in."""

import csv
import io
from pathlib import Path

from curate.columns import KEY, LABEL, URI
from curate.counted import repeated
from curate.exporting.contract import LINES, Format, Plan
from curate.exporting.labels import Collector, ExpectedRows, Labels
from curate.exporting.parts import AllParts, Part
from curate.exporting.rows import Rows, is_plain, json_values
from curate.manifest.text import csv_lines, read_text, unguarded
from scoring.errors import InputError
from scoring.lookup import closest

ANNOTATOR = "annotator"
TIMES = ("at", "timestamp", "ts", "created_at")
KEYS = (KEY, f"curate_{KEY}", "id")
_DELIMITERS = (",", ";", "\t")
_WHAT = "a CSV file"


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write one line per row."""
    columns = [json_values(rows.table[name]) for name in _columns(plan)]
    lines = zip(rows.keys, rows.uris, *columns, rows.labels, [None] * len(rows), strict=True)
    part.piece(LINES, csv_lines(lines).encode())


def finish(parts: AllParts, plan: Plan) -> tuple[str, ...]:
    """Write `key`, `uri`, the columns, `label` (empty to fill in) and an empty `annotator`.

    UTF-8, with a byte order mark if not all is ASCII (spreadsheets need it); lines end in CRLF (RFC 4180).
    """
    header = csv_lines([[KEY, URI, *_columns(plan), LABEL, ANNOTATOR]]).encode()
    file = parts.target(parts.out)
    is_ascii = header.isascii() and all(path.read_bytes().isascii() for path in parts.places(LINES))
    file.write(header if is_ascii else b"\xef\xbb\xbf" + header)
    parts.join(file, LINES)
    return ()


def _columns(plan: Plan) -> list[str]:
    others = (KEY, URI, plan.label, LABEL, ANNOTATOR)
    return [field.name for field in plan.schema if field.name not in others and is_plain(field.type)]


def read(path: Path, rows: ExpectedRows, name: str | None = None) -> Labels:
    """Read `key` (or `id`) and `label`, and `annotator` and `at` if present.

    The header determines the separator: comma, semicolon or tab. Cells are text: `007` stays `007`. Several rows of one
    key are votes of several annotators.
    """
    text = read_text(path, what=_WHAT)
    if "\0" in text:
        raise InputError(f"expected {_WHAT}, got NUL characters in {path}; save it as CSV in UTF-8")
    label_column = name or LABEL
    delimiter, header = _header(text, path, label_column)
    at_key = next(header.index(column) for column in KEYS if column in header)
    at_label = header.index(label_column)
    at_who = header.index(ANNOTATOR) if ANNOTATOR in header else None
    at_time = next((header.index(column) for column in TIMES if column in header), None)
    collector = Collector(rows, str(path))
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for number, cells in enumerate(lines):
            if number == 0 or not any(cells):
                continue
            if len(cells) != len(header):
                raise InputError(
                    f"expected {len(header)} cells a line in {path}, got {len(cells)} in line {lines.line_num:,}; "
                    "fix the line, or quote cells that hold the separator"
                )
            key = _key(cells[at_key], rows)
            who = None if at_who is None else unguarded(cells[at_who]) or None
            collector.add(key, unguarded(cells[at_label]), who, None if at_time is None else cells[at_time] or None)
    except csv.Error as error:
        raise InputError(f"expected {_WHAT}, got {error} in line {lines.line_num:,} of {path}; fix the line") from None
    return collector.finish()


def _header(text: str, path: Path, label_column: str) -> tuple[str, list[str]]:
    """Return the separator that gives the header a key and a label column, and the column names."""
    fits, tried = [], []
    for delimiter in _DELIMITERS:
        try:
            names = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), [])
        except csv.Error:
            continue
        names = [unguarded(name.strip()) for name in names]
        tried.append(names)
        if label_column in names and any(key in names for key in KEYS):
            fits.append((delimiter, names))
    if not fits:
        names = max(tried, key=len, default=[])
        hint = closest("key" if label_column in names else label_column, names)
        raise InputError(
            f"expected {_WHAT} with the columns 'key' and {label_column!r}, got "
            f"{', '.join(names[:12])[:200] or 'nothing'} in {path}{hint}; add or rename the column"
        )
    delimiter, names = fits[0]
    twice = [column for column in repeated(names) if column in (*KEYS, label_column, ANNOTATOR, *TIMES)]
    if twice:
        raise InputError(f"expected the column {twice[0]!r} once in {path}, got it twice; remove one")
    return delimiter, names


def _key(cell: str, rows: ExpectedRows) -> str:
    """Return the key in a cell, without the guard against formulas unless the key itself begins so."""
    key = unguarded(cell)
    return cell if key not in rows.uris and cell in rows.uris else key


CSV = Format(
    part,
    finish,
    read=read,
    out="one row an image: key, uri, rank, round, gain, scores, `label` (empty where it is requested) and an empty "
    "`annotator`",
    back="columns `key` and `label`; `annotator` and `at` if present",
    suffix=".csv",
    load=("import polars; data = polars.read_csv({out})",),
)
