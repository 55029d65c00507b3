"""From CSV and JSON lines to an Arrow table, without changing values."""

import re
from collections.abc import Collection
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from curate.counted import counted
from curate.manifest.contract import SourceOptions
from curate.manifest.keys import check_keys, check_paths, check_text
from curate.manifest.layout import PATH_NAMES, Layout, find_layout, make_rows, resolve, text_of, uri_of_each_scheme
from curate.manifest.memory import MemoryManifest, check_unique
from curate.manifest.names import error_line, is_image_name, suffix_of
from curate.manifest.reach import Reach
from curate.manifest.schemes import SchemeCheck
from curate.manifest.text import GUARDED, decoded
from scoring.errors import InputError
from scoring.lookup import name_list

MAX_TABLE_BYTES = 4 << 30  # bound, since these formats are read whole; use Parquet for larger tables
_SEPARATOR = re.compile("sep=([,;\t|])")  # first line used by Excel
_MAX_LINE = 64 << 20
_MAX_DEPTH = 200  # maximum nesting; Arrow's reader supports some thousands
_DEPTH_BLOCK = 16 << 20
_NEITHER = bytes(set(range(256)) - set(b'"[]{}'))  # neither quote nor bracket
_PEEK = 1000  # letters
_FIRST = 1 << 20  # bytes read for the column names
# Text is read from memory and without threads, which leaves out open_csv: a process that ends when Arrow has only just
# begun a thread is aborted (status 134, after the message), and the end is near where a file is empty or broken.
# Text that Arrow would parse as numbers with loss: leading zeros, signs, spaces.
_INTEGER = r"^(0|-?[1-9][0-9]{0,18})$"
_DECIMAL = r"^-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


def read_csv(data: bytes, where: str, *, expects: Collection[str] = (), names_only: Collection[str] = ()) -> pa.Table:
    """Parse CSV with a header, as programs and spreadsheets write it.

    The text is UTF-8, or UTF-16 with a byte order mark. The separator is a comma, semicolon, tab or `|`: by a first
    line `sep=;`, else the one that gives an expected column, else the one in the header. A column is int64 if every
    non-empty cell is an integer in canonical form (`007` stays text), float64 if every such cell is a decimal number,
    bool if all are `true` or `false`, and text otherwise. Empty cells are null; the mark of `guarded` is removed.

    Args:
        data: bytes of the file.
        where: its name, for messages.
        expects: lower-case column names, one of which the file should have.
        names_only: columns of names, which are never converted to decimals or booleans.

    Raises:
        InputError: if the text cannot be parsed; contains the parser's reason.
    """
    text = decoded(data, what="CSV with a header", where=where)
    if "\0" in text[:_PEEK]:
        raise InputError(
            f"expected CSV in UTF-8, got UTF-16 without its mark, or other bytes, in {where}; save it as UTF-8"
        )
    delimiter, text = _delimited(text, where, expects)
    data = text.encode()
    parsing = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    reading = pa.csv.ReadOptions(block_size=_MAX_LINE, use_threads=False)
    try:
        every_text = dict.fromkeys(_names(data, reading, parsing), pa.string())
        converting = pa.csv.ConvertOptions(strings_can_be_null=False, column_types=every_text)
        table = pa.csv.read_csv(pa.BufferReader(data), reading, parsing, converting)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise InputError(f"expected CSV with a header in {where}, got {error_line(error)}; fix the file") from None
    columns = [
        _narrow(column, name in names_only) for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, names=table.column_names)


def _delimited(text: str, where: str, expects: Collection[str]) -> tuple[str, str]:
    """Return the delimiter of a sheet, and the text from its header on."""
    usual = "\t" if suffix_of(where) == "tsv" else ","
    header, _, rest = text.partition("\n")
    if separator := _SEPARATOR.fullmatch(header.strip()):
        return separator[1], rest
    order = (usual, *(each for each in ",;\t|" if each != usual))
    names = {each: [name.strip().strip('"').lower() for name in header.split(each)] for each in order}
    fits = [each for each in order if set(expects) & set(names[each])]
    return next(iter(fits or [each for each in order if each in header]), usual), text


def _names(data: bytes, reading: pa.csv.ReadOptions, parsing: pa.csv.ParseOptions) -> list[str]:
    """Return the names in the header of a sheet.

    Parsed with a few first lines, or with all if that fails because a quoted cell was cut.
    """
    first = data[: data.rfind(b"\n", 0, _FIRST) + 1]
    if len(data) > _FIRST and first:
        with suppress(pa.ArrowInvalid):
            return list(pa.csv.read_csv(pa.BufferReader(first), reading, parsing).column_names)
    return list(pa.csv.read_csv(pa.BufferReader(data), reading, parsing).column_names)


def _narrow(text: pa.ChunkedArray, is_name: bool) -> pa.ChunkedArray:
    """Return a column of text as numbers or booleans if that is lossless."""
    empty = pc.equal(pc.binary_length(text), 0)
    kinds = [(_INTEGER, pa.int64()), (_DECIMAL, pa.float64()), ("^(true|false)$", pa.bool_())]
    for pattern, kind in kinds[:1] if is_name else kinds:
        fits = pc.or_(empty, pc.match_substring_regex(text, pattern))
        if pc.all(fits).as_py() and not pc.all(empty).as_py():
            try:
                return pc.if_else(empty, pa.scalar(None, pa.string()), text).cast(kind)
            except pa.ArrowInvalid:  # does not fit into 64 bits: stays text
                break
    unmarked = pc.if_else(pc.match_substring_regex(text, GUARDED), pc.utf8_slice_codeunits(text, 1), text)
    return pc.if_else(empty, pa.scalar(None, pa.string()), unmarked)


def read_jsonl(data: bytes, where: str) -> pa.Table:
    """Parse JSON lines: one object per line; nested values become structs and lists; text stays text.

    Raises:
        InputError: if a line is not an object, or a column changes its type; contains the parser's reason.
    """
    if data.lstrip()[:1] == b"[":
        raise InputError(f"expected one JSON object a line in {where}, got one array; write it as JSON lines")
    _check_depth(data, where)
    options = pa.json.ReadOptions(block_size=_MAX_LINE, use_threads=False)
    try:
        table = pa.json.read_json(pa.BufferReader(data), read_options=options)
        plain = pa.schema([(field.name, _without_times(field.type)) for field in table.schema])
        if plain != table.schema:
            again = pa.json.ParseOptions(explicit_schema=plain)
            table = pa.json.read_json(pa.BufferReader(data), read_options=options, parse_options=again)
        table.validate(full=True)  # Arrow's JSON reader takes text that is not UTF-8
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise InputError(f"expected one JSON object a line in {where}, got {error_line(error)}; fix the file") from None
    return table


def _check_depth(data: bytes, where: str) -> None:
    """Refuse deeply nested values, since Arrow's recursive reader would crash the process."""
    start = depth = inside = 0
    while start < len(data):
        stop = data.find(b"\n", start + _DEPTH_BLOCK) + 1 or len(data)
        text = data[start:stop].replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NEITHER)
        block = np.frombuffer(text, np.uint8)
        is_quote = block == ord('"')
        outside = ~is_quote & ((np.cumsum(is_quote) + inside) % 2 == 0)
        opens = (block == ord("[")) | (block == ord("{"))
        depths = depth + np.cumsum(np.where(opens, 1, -1)[outside])
        if len(depths) and depths.max() > _MAX_DEPTH:
            raise InputError(
                f"expected values nested at most {_MAX_DEPTH} deep in {where}, got more; store deeper values as text"
            )
        start, inside = stop, (inside + int(is_quote.sum())) % 2
        depth = int(depths[-1]) if len(depths) else depth


def _without_times(kind: pa.DataType) -> pa.DataType:
    """Return a type with text instead of times, at any depth: Arrow infers times from text like dates."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([(part.name, _without_times(part.type)) for part in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    return kind


def open_text_table(
    table: pa.Table,
    options: SourceOptions,
    *,
    root: str,
    name: str,
    identity: str,
    reach: Reach = Reach(),  # noqa: B008 (it is frozen)
) -> MemoryManifest:
    """Return a manifest of a table with a path or URL column.

    Args:
        table: as read.
        options: all except the folder options are used.
        root: absolute path or URL to which relative paths refer.
        name: the file's name; numbered rows are named after it.
        identity: added to the digest.
        reach: where paths and URLs may lead.

    Raises:
        InputError: if it has no rows, no path column, invalid or repeated keys, or only unsupported schemes.
        MissingExtraError: if the driver of a scheme is not installed.
    """
    first = next(filter(is_image_name, table.column_names), None)
    if first is not None and not {column.lower() for column in table.column_names} & {*PATH_NAMES}:
        raise InputError(
            f"expected column names in the first line of {name}, got the image {first!r}; write a header above it, "
            "such as: path,label"
        )
    layout = find_layout(table.schema, options, name)
    if layout.path is None:
        raise InputError(
            f"expected a column with paths or URLs in {name}, got the columns {name_list(table.column_names)}; "
            "choose one with --path-column"
        )
    table = table.slice(0, options.limit)
    if table.num_rows == 0:
        raise InputError(f"expected at least one row in {name}, got the header only; add rows")
    paths = text_of(table[layout.path])
    check_paths(paths, root, layout.path, name)
    check_text(paths, 0, layout.path, name)
    uris = resolve(paths, root)
    schemes = SchemeCheck()
    for uri in uri_of_each_scheme(uris):
        schemes.add(uri)
    schemes.finish()
    rows = make_rows(_keys(table, layout, name), uris, table, layout)
    if layout.key is not None:
        check_unique(rows["key"], layout.key, name)
    manifest = MemoryManifest(
        f"table {name}: {counted(table.num_rows, 'row')}, paths in column {layout.path!r}",
        rows,
        options=options,
        reach=reach,
        identity=("table", identity),
    )
    manifest.renamed = layout.renamed
    return manifest


def _keys(table: pa.Table, layout: Layout, name: str) -> pa.Array:
    if layout.key is None:
        return numbered_keys(name, 0, table.num_rows)
    keys = text_of(table[layout.key])
    check_keys(keys, 0, layout.key, name)
    return keys


def numbered_keys(name: str, start: int, stop: int) -> pa.Array:
    """Return `<name>#<row>` for rows [start, stop), rows counted from 0.

    >>> numbered_keys("a.parquet", 0, 2).to_pylist()
    ['a.parquet#0', 'a.parquet#1']
    """
    return pa.array([f"{name}#{row}" for row in range(start, stop)], pa.string())
