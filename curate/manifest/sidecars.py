"""The members that belong to an image in a tar (`.cls`, `.json`, `.txt`) -> columns."""

import json
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from curate.manifest.contract import ReadError
from curate.manifest.places import Place
from curate.manifest.tar_index import Member
from scoring.errors import InputError

SIDECARS = {"cls": 1 << 10, "txt": 1 << 20, "json": 1 << 20}  # extension -> bound on its size in bytes
_COLUMNS = {"cls": "label", "txt": "text"}
MAX_COLUMNS = 1000
_INTEGER = re.compile("0|-?[1-9][0-9]{0,17}")  # a number in its usual form: 001 is a name
_INT64 = range(-(1 << 63), 1 << 63)

Scalar = str | int | float | bool | None


class Sidecars:
    """Values of one shard's rows, in row order.

    Args:
        place: the shard.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._values: dict[str, list[Scalar]] = {}
        self._rows = 0
        self.unused = 0  # members that are too large, not UTF-8 or not JSON

    def add(self, members: Iterable[tuple[str, Member]]) -> None:
        """Add the next row's members, as (extension, member)."""
        row: dict[str, Scalar] = {}
        for extension, member in members:
            for name, value in self._parse(extension, member).items():
                # `.cls` and `.txt` come first for their columns, wherever they stand
                if extension in _COLUMNS or name not in row:
                    row[name] = value
        for name, value in row.items():
            self._column(name).append(value)
        self._rows += 1
        for values in self._values.values():
            if len(values) < self._rows:
                values.append(None)

    def _column(self, name: str) -> list[Scalar]:
        if name not in self._values:
            if len(self._values) == MAX_COLUMNS:
                raise InputError(
                    f"expected at most {MAX_COLUMNS} different keys in the .json members of {self._place.name}, "
                    f"got more (such as {name[:40]!r}); move keys that differ between rows into one nested value"
                )
            self._values[name] = [None] * self._rows
        return self._values[name]

    def _parse(self, extension: str, member: Member) -> dict[str, Scalar]:
        try:
            text = self._place.read(member.offset, member.size, SIDECARS[extension]).decode("utf-8")
            return _scalars(json.loads(text)) if extension == "json" else {_COLUMNS[extension]: _value(extension, text)}
        except (ReadError, ValueError, RecursionError):  # the image is a row all the same; the count is reported
            self.unused += 1
            return {}

    def columns(self) -> dict[str, pa.Array]:
        """Return one array a column, each as long as the rows that were added."""
        return {name: _array(values) for name, values in self._values.items()}


def _value(extension: str, text: str) -> Scalar:
    if extension == "txt":
        return text
    text = text.strip()
    return int(text) if _INTEGER.fullmatch(text) else text


def _scalars(value: Any) -> dict[str, Scalar]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return {name: item for name, item in value.items() if item is None or isinstance(item, str | int | float)}


def _array(values: list[Scalar]) -> pa.Array:
    """Return the values as bool, int64, float64 or, if mixed, string; only nulls as null."""
    kinds = {type(value) for value in values if value is not None}
    if int in kinds and any(type(value) is int and value not in _INT64 for value in values):
        kinds.add(str)
    if not kinds:
        return pa.nulls(len(values))
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds == {int}:
        return pa.array(values, pa.int64())
    if kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: Scalar) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "replace").decode("utf-8")  # JSON may hold half a surrogate pair


def combine(
    shards: list[dict[str, pa.Array]], lengths: list[int], taken: set[str]
) -> tuple[dict[str, pa.ChunkedArray], dict[str, str]]:
    """Combine the shards' columns: their union, in order of appearance.

    A column whose type differs from shard to shard becomes float64 where all are numbers, else string. A
    column whose name is taken gets `source_` in front, as often as it takes.

    Args:
        shards: what `Sidecars.columns` returned for each.
        lengths: number of rows of each.
        taken: names that the columns may not have.

    Returns:
        The columns, and those that were renamed.
    """
    kinds: dict[str, set[pa.DataType]] = {}
    for columns in shards:
        for name, column in columns.items():
            kinds.setdefault(name, set()).add(column.type)
    renamed: dict[str, str] = {}
    for name in (name for name in kinds if name in taken):
        new = name
        while new in taken or new in kinds or new in renamed.values():
            new = f"source_{new}"
        renamed[name] = new
    together = {}
    for name, column_kinds in kinds.items():
        kind = _common(column_kinds - {pa.null()})
        pairs = zip(shards, lengths, strict=True)
        parts = [columns[name].cast(kind, safe=False) if name in columns else pa.nulls(n, kind) for columns, n in pairs]
        together[renamed.get(name, name)] = pa.chunked_array(parts, kind)
    return together, renamed


def _common(kinds: set[pa.DataType]) -> pa.DataType:
    if len(kinds) == 1:
        return next(iter(kinds))
    return pa.float64() if kinds and kinds <= {pa.int64(), pa.float64()} else pa.string()
