"""The classes of a column: listed in the table's metadata, so that class numbers are equal in every subset."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import CUSTOM, LABEL, describe
from curate.counted import counted, repeated
from curate.manifest.classes import CLASSES as CLASSES  # under which name lists are in the metadata of a table
from curate.manifest.classes import ClassLists, class_labels, class_lists, named
from curate.manifest.store_path import path_to_read
from curate.manifest.text import read_text
from curate.tables.arrays import texts
from curate.tables.digests import is_text, plain, value_type
from curate.tables.table import Table, open_table
from scoring.errors import InputError
from scoring.lookup import closest, name_list

MOST_LABELS = 100_000  # classes of the column `label` that are listed
MOST_CLASSES = 1_000  # of any other column of text, whose values come twice or more on average
MOST_COLUMNS = 64  # other columns of text that are looked at
MOST_NAMES = 10_000  # listed of all other columns together: metadata is read whenever a table is opened
FLAG = "--classes"
FILES = (".txt", ".csv", ".names", ".parquet", ".pq")  # what the name of a file that was meant ends in


def lists_of(table: Table) -> ClassLists:
    """Return the names of the classes by column, from the metadata of a table."""
    return class_lists(table.schema.with_metadata(table.file_metadata), table.path)


def lists_for_subset(table: Table) -> ClassLists:
    """Return the class lists that a subset of the table records: from its metadata, else from its rows."""
    if CLASSES in table.metadata:
        return lists_of(table)
    columns = class_columns(table.schema, lists_of(table))
    batches = (pa.Table.from_batches([batch]) for batch in table.batches(columns, compact=True)) if columns else ()
    return {**lists_from_values(batches), **lists_of(table)}


def class_columns(schema: pa.Schema, listed: Collection[str]) -> list[str]:
    """Return the columns that may hold classes and are not listed yet."""
    user_fields = [field for field in schema if describe(field.name) is CUSTOM and field.name not in listed]
    kinds = {field.name: value_type(field.type) for field in user_fields}
    of_label = kinds.pop(LABEL, pa.null())
    is_number = pa.types.is_integer(of_label) or pa.types.is_floating(of_label) or pa.types.is_boolean(of_label)
    texts = [name for name, kind in kinds.items() if is_text(kind)][:MOST_COLUMNS]
    return [LABEL, *texts] if is_number or is_text(of_label) else texts


def lists_from_values(pieces: Iterable[pa.Table]) -> ClassLists:
    """Return the distinct values of columns with few enough to be classes, in natural order.

    ``pieces`` are the columns of ``class_columns``, in row order.
    """
    seen: dict[str, pa.Array] = {}
    rows: dict[str, int] = {}
    gone: set[str] = set()
    for piece in pieces:
        for name in (name for name in piece.column_names if name not in gone):
            values = piece[name].combine_chunks()
            rows[name] = rows.get(name, 0) + len(values) - values.null_count
            new = plain(pc.unique(values))
            seen[name] = pc.unique(pa.concat_arrays([seen[name], new])) if name in seen else new
            values = seen[name]
            if pa.types.is_floating(values.type):  # classes only if they are integers
                numbers = values.cast(pa.float64()).drop_null()
                are_integers = pc.or_(pc.is_nan(numbers), pc.equal(numbers, pc.trunc(numbers)))
                gone |= {name} if pc.all(are_integers).as_py() is False else set()
            gone |= {name} if len(values) > (MOST_LABELS if name == LABEL else MOST_CLASSES) else set()
    lists: ClassLists = {}
    room = MOST_NAMES
    for name in (name for name in seen if name not in gone):
        names = ordered_names(seen[name])
        is_listed = name == LABEL or (2 * len(names) <= rows[name] and len(names) <= room)
        if names and is_listed:
            lists[name] = names
            room -= 0 if name == LABEL else len(names)
    return lists


def refuse_measured(column: str, values: Iterable[object], rows: int, path: object) -> None:
    """Raise InputError for numbers as classes if over half of the rows have distinct ones, not all integers.

    Args:
        column: of floats.
        values: distinct values, as numbers or text.
        rows: number of rows.
        path: of the table, for the message.
    """
    numbers = [float(str(value)) for value in values if value not in (None, "")]
    if 2 * len(numbers) <= rows:
        return
    if fractions := [number for number in numbers if math.isfinite(number) and number % 1]:
        raise InputError(
            f"expected classes or groups in column {column!r} of {path}, got {len(numbers):,} different numbers in "
            f"{counted(rows, 'row')}, such as {min(fractions):g}; choose a column of classes, or write its "
            "ranges as text"
        )


def ordered_names(values: pa.Array) -> tuple[str, ...]:
    """Return distinct values as names, without missing ones, in the order of ``in_order``."""
    return in_order(texts(values).drop_null().unique().to_pylist(), values.type)


def in_order(names: Iterable[str], kind: pa.DataType) -> tuple[str, ...]:
    """Return names in the order of their values: numerically if ``kind`` is numeric.

    >>> in_order(["10", "2"], pa.int64()), in_order(["10", "2"], pa.string())
    (('2', '10'), ('10', '2'))
    """
    key = int if pa.types.is_integer(kind) else float if pa.types.is_floating(kind) else None
    return tuple(sorted(names, key=key))


@dataclass(frozen=True)
class ClassList:
    """The classes of a column, independent of the rows present.

    Attributes:
        column: of the labels.
        names: all names, in the order of their numbers; empty if not listed.
        source: origin of the list, for messages.
        numbered: names of the numbers in the column, from 0; empty for a column of names.
    """

    column: str
    names: tuple[str, ...] = ()
    source: str = ""
    numbered: tuple[str, ...] = ()

    def texts(self, values: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the class of each row as text; null for none."""
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if self.numbered:
            return named(plain(array), self.numbered, self.column, self.source or "the table").cast(pa.large_string())
        return texts(array)

    def complete(self, names_in_rows: Collection[str], kind: pa.DataType) -> tuple[str, ...]:
        """Return all names in order: the listed ones, or those in the rows.

        Raises InputError for a class that is not listed, since it would shift the numbers of others.
        """
        if not self.names:
            return in_order(names_in_rows, kind)
        listed = set(self.names)
        strange = [name for name in names_in_rows if name not in listed]
        if strange:
            raise InputError(
                f"expected a class of {self.source} in column {self.column!r} ({name_list(self.names, strange[0])}), "
                f"got {strange[0]!r}{closest(strange[0], self.names)}; list all of them with {FLAG}"
            )
        return self.names


NO_CLASSES = ClassList("")


def class_list(table: Table, column: str, classes: str | Path | Sequence[str] | None = None) -> ClassList:
    """Return the classes of a column of a table.

    Names for a column of integers refer to 0, 1, ..., unless they are numbers.

    Args:
        table: with the column.
        column: of labels.
        classes: their names, as for ``read_classes``; None for those in the table's metadata.

    Raises:
        InputError: if ``classes`` is empty.
    """
    numbered = class_labels(table.schema.with_metadata(table.file_metadata))
    if classes is None:
        names = lists_of(table).get(column, ())
        return ClassList(column, names, f"the metadata of {table.path}" if names else "", numbered.get(column, ()))
    names = read_classes(classes, column)
    is_integer = pa.types.is_integer(table.schema.field(column).type)
    stands_for = names if is_integer and not any(name.lstrip("-").isdecimal() for name in names) else ()
    return ClassList(column, names, FLAG, numbered.get(column, stands_for))


def read_classes(classes: str | Path | Sequence[str], column: str = LABEL) -> tuple[str, ...]:
    """Return the names of classes in the order of their numbers.

    Args:
        classes: names separated by commas; a text file with a name per line; a table, for all classes of its column; or
            a sequence of names.
        column: of the table.

    Raises:
        InputError: for an empty or repeated name, a missing file, or a table without the column.

    >>> read_classes("cat, dog")
    ('cat', 'dog')
    """
    typed = _typed_names(str(classes), column) if isinstance(classes, str | Path) else classes
    names = [str(name) for name in typed]
    twice = repeated(names)
    if not names or twice or not all(names):
        got = "none" if not names else f"{twice[0]!r} twice" if twice and twice[0] else "an empty name"
        raise InputError(f"expected class names, each once, got {got} in {FLAG}; fix the list")
    return tuple(names)


def _typed_names(text: str, column: str) -> list[str]:
    if not text.strip():
        return []
    place = path_to_read(text)
    if "://" in text or place.is_dir() or (place.is_file() and place.suffix.lower() in (".parquet", ".pq")):
        table = open_table(text, require=[column])
        listed = lists_of(table).get(column)
        return list(listed or ordered_names(pc.unique(plain(table.read([column])[column].combine_chunks()))))
    if isinstance(place, Path) and place.is_file():
        lines = read_text(place, what="a text file with one class name per line").splitlines()
        return [line.strip() for line in lines if line.strip()]
    if "," not in text and ("/" in text or place.suffix.lower() in FILES):
        raise InputError(f"{text} does not exist; pass names with commas, a text file or a table as {FLAG}")
    return [name.strip() for name in text.split(",")]
