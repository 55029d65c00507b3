"""Columns described by a Parquet file's metadata: classes, ours and Hugging Face's, and earlier scores."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import CUSTOM, describe
from curate.manifest.text import json_object
from scoring.errors import InputError

CLASSES = "classes"  # our metadata key: column -> class names in the order of their numbers
OUR_KEY, DATASETS_KEY = b"curate", b"huggingface"
CLASS_LABEL = "ClassLabel"
NO_LABEL = -1  # value of `datasets` for an unknown class
LIKE_MISSING = ("nan", "null", "n/a", "<na>")
ClassLists = dict[str, tuple[str, ...]]


def missing_note(names: Iterable[object], where: str) -> str:
    """Return a line on class names that look like a missing value; empty for none. Only an empty cell is missing.

    >>> missing_note(["cat", "NaN"], "column 'label'")
    "column 'label': 'NaN' is read as a class; leave the cell empty if there is none"
    """
    like = sorted({str(name) for name in names if str(name).strip().lower() in LIKE_MISSING})
    named = ", ".join(map(repr, like))
    how = "is read as a class" if len(like) == 1 else "are read as classes"
    return f"{where}: {named} {how}; leave the cell empty if there is none" if like else ""


def class_lists(schema: pa.Schema, where: object) -> ClassLists:
    """Return the class names by column, if the file's metadata lists them; InputError if curate's list is invalid."""
    noted = _json(schema, OUR_KEY).get(CLASSES, {})
    lists = {name: _names(names) for name, names in noted.items()} if isinstance(noted, dict) else {"": ()}
    if not all(lists.values()):
        raise InputError(f"{where} has lists of classes in its metadata that are not lists of names; write it again")
    flat = {field.name for field in schema if not pa.types.is_nested(field.type)}
    return {**class_labels(schema), **{name: names for name, names in lists.items() if name in flat}}


def earlier_scores(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that `curate score` added to the file; empty for another file."""
    return tuple(name for name in schema.names if "model" in _json(schema, OUR_KEY) and describe(name) != CUSTOM)


def class_labels(schema: pa.Schema) -> ClassLists:
    """Return the class names by column, for integer columns whose values are indices into a list.

    Metadata in another form than `datasets` writes is ignored.

    >>> note = '{"info": {"features": {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}}}'
    >>> class_labels(pa.schema([("label", pa.int64())], {"huggingface": note}))
    {'label': ('cat', 'dog')}
    """
    info = _json(schema, DATASETS_KEY).get("info")
    features = info.get("features") if isinstance(info, dict) else None
    class_names = {
        name: _names(feature.get("names"))
        for name, feature in (features.items() if isinstance(features, dict) else ())
        if isinstance(feature, dict) and feature.get("_type") == CLASS_LABEL
    }
    integer_columns = {field.name for field in schema if pa.types.is_integer(field.type)}
    return {name: names for name, names in class_names.items() if names and name in integer_columns}


def _json(schema: pa.Schema, key: bytes) -> dict[str, Any]:
    return json_object((schema.metadata or {}).get(key, b"{}")) or {}


def _names(value: object) -> tuple[str, ...]:
    """Return a list of distinct names; empty for any other value."""
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        return ()
    return tuple(value) if len(set(value)) == len(value) else ()


def with_text(schema: pa.Schema, labels: Mapping[str, Sequence[str]]) -> pa.Schema:
    """Return the schema with text instead of class numbers."""
    return pa.schema([field.with_type(pa.string()) if field.name in labels else field for field in schema])


def named(values: pa.Array | pa.ChunkedArray, names: Sequence[str], column: str, where: object) -> pa.Array:
    """Return class names by their numbers, as text; null for null and -1.

    Raises:
        InputError: for a number outside of the list; names ``column`` and ``where``.

    >>> named(pa.array([1, -1, None]), ["cat", "dog"], "label", "t.parquet").to_pylist()
    ['dog', None, None]
    """
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    numbers = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    outside = (numbers < NO_LABEL) | (numbers >= len(names))
    if outside.any():
        raise InputError(
            f"expected numbers of classes from 0 to {len(names) - 1} in column {column!r} of {where}, whose metadata "
            f"names {len(names):,} of them, got {numbers[outside][0]}; write the table again with all names"
        )
    absent = array.is_null().to_numpy(zero_copy_only=False) | (numbers == NO_LABEL)
    return pa.array(names, pa.string()).take(pa.array(numbers, pa.int64(), mask=absent))
