"""A user column: from the table, or joined by key from another file."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY
from curate.manifest.text import read_bytes
from curate.manifest.text_tables import read_csv
from curate.tables.digests import is_list, is_text, plain
from curate.tables.table import Table, open_table
from scoring.errors import InputError
from scoring.lookup import name_list, require_known

KEY_NAMES = (KEY, "id")  # key columns of the joined file; the first existing one is used
SUFFIXES = (".csv", ".tsv")


@dataclass(frozen=True)
class LabelledFile:
    """A file of labels or votes, to be joined by key; ``read`` returns a table of the named columns."""

    path: Path
    names: list[str]
    read: Callable[[list[str]], pa.Table]


def open_labelled(path: str | Path | None) -> LabelledFile | None:
    """Open a .csv or .tsv file, or a table; None for None; InputError if it is missing or cannot be read."""
    if path is None:
        return None
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        opened = open_table(path)
        return LabelledFile(path, opened.schema.names, opened.read)
    data = read_bytes(path, what="labels for --labelled")
    contents = read_csv(data, str(path), expects=KEY_NAMES, names_only=KEY_NAMES)
    return LabelledFile(path, contents.column_names, contents.select)


def named_column(table: Table, name: str, option: str, labelled: LabelledFile | None = None) -> pa.ChunkedArray:
    """Return the values of a column for every row of the table; null if the file of labels lacks the key.

    Args:
        table: the scored table.
        name: of a column in ``labelled``, else in the table.
        option: for messages, such as ``--label``.
        labelled: a file with a column ``key`` (or ``id``), joined by it.

    Raises:
        InputError: if neither has such a column, or no key of the table is in the file.
    """
    if labelled is None or (name not in labelled.names and name in table.schema.names):
        table.require([name])
        return table.read([name]).column(0)
    keys, values = _keyed(labelled, name, option)
    table.require([KEY])
    ours = _as_text(table.read([KEY]).column(0))
    places = pc.index_in(ours.combine_chunks(), value_set=keys)
    if places.null_count == len(places) and len(places):
        raise InputError(
            f"--labelled: expected keys of {table.path} in {labelled.path}, got none in common (here "
            f"{ours[0].as_py()!r}, there {keys[0].as_py() if len(keys) else 'no rows'!r}); score with --key, or give "
            "the same keys there"
        )
    return pa.chunked_array([values.take(places)])


def _keyed(labelled: LabelledFile, column: str, option: str) -> tuple[pa.Array, pa.Array]:
    """Return the keys as text and the values of a file, M rows each."""
    file, names = labelled.path, labelled.names
    key = next((name for name in KEY_NAMES if name in names), None)
    if key is None:
        raise InputError(
            f"--labelled: expected a column 'key' or 'id' in {file}, got {name_list(names, 'key')}; rename one"
        )
    require_known(column, names, f"{option}: {file} has no column", "columns")
    columns = labelled.read(list(dict.fromkeys([key, column])))
    keys, values = _as_text(columns.column(key)).combine_chunks(), columns.column(column).combine_chunks()
    if keys.null_count:
        raise InputError(f"--labelled: expected a {key} in every row of {file}, got {keys.null_count:,} null; fix them")
    if len(pc.unique(keys)) < len(keys):
        raise InputError(f"--labelled: expected each {key} once in {file}, got some more than once; make keys unique")
    return keys, values


def _as_text(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = keys.type
    if not is_text(kind) and not pa.types.is_integer(kind):
        raise InputError(f"expected keys of text or integers, got {kind}; convert them to text")
    return keys.cast(pa.string())


def class_names(values: pa.ChunkedArray, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return class numbers from 0, shape (N,), and the classes as text; null, NaN and "" become -1.

    Raises:
        InputError: if the values are lists, structs or fractions; names the column.
    """
    codes, encoded = _encoded(values, name)
    if pa.types.is_floating(encoded.type):
        encoded = encoded.cast(pa.int64())  # 3.0 is class 3
    return codes, [str(each) for each in encoded.to_pylist()]


def _encoded(values: pa.ChunkedArray, name: str) -> tuple[NDArray[np.int64], pa.Array]:
    kind = values.type
    if pa.types.is_nested(kind):
        raise InputError(f"expected one label a row in {name!r}, got {kind}; pass votes as --votes")
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    column = plain(column)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        known = column.drop_null()
        if len(known) and not pc.all(pc.equal(known, pc.round(known))).as_py():
            raise InputError(
                f"expected classes in {name!r}, got fractions (such as {known[0]}); choose the label column"
            )
    elif is_text(column.type):  # CSV has the empty text where there is no label
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary


def vote_counts(values: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    """Return votes per class, shape (N, C), float64; NaN for a row that is null or contains a null.

    Raises:
        InputError: if they are not lists of numbers >= 0 of equal length.
    """
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    kind = column.type
    if not is_list(kind) or not (pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)):
        raise InputError(
            f"--votes: expected lists of counts, one a class, in {name!r}, got {kind}; choose such a column"
        )
    lengths = pc.value_counts(pc.list_value_length(column).drop_null()).to_pylist()
    if len(lengths) > 1:
        lengths_seen = ", ".join(f"{length['values']} in {length['counts']:,} rows" for length in lengths[:3])
        raise InputError(
            f"--votes: expected lists of one length in {name!r}, got {lengths_seen}; give every class a count"
        )
    width = lengths[0]["values"] if lengths else 0
    if not width:
        raise InputError(f"--votes: expected counts of at least two classes in {name!r}, got empty lists; fix them")
    out = np.full((len(column), width), np.nan)
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    flat = column.drop_null().flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)
    out[is_valid] = flat.reshape(-1, width)
    out[np.isnan(out).any(1)] = np.nan
    if width < 2 or (out < 0).any() or np.isinf(out).any():
        what = f"lists of {width}" if width < 2 else "a negative or infinite count"
        raise InputError(f"--votes: expected counts >= 0 of at least two classes in {name!r}, got {what}; fix them")
    return out
