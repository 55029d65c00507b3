"""The columns of a table that a policy, a strategy or a measure needs, with their types; checked before reading."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from curate.columns import EMBEDDING, FOLDER, KEY, SIGNATURE, STATUS
from curate.tables.digests import is_bytes, is_text, value_type
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.lookup import name_list

if TYPE_CHECKING:
    from curate.tables.where import Condition

SHA256, PHASH = "sha256", "phash"
EMBEDDINGS = frozenset({EMBEDDING})
MOST_DIGITS = 38  # of a decimal


@dataclass(frozen=True)
class Needs:
    """Columns by name, and how they are read.

    Attributes:
        exact: numbers in the column's own precision.
        numbers: numbers as float64.
        groups: names or numbers, whose rows belong together; null is one of them.
        names: values as text, such as classes; null and empty text are not counted.
        texts: text kept whole.
        present: of which only counts whether there is a value.
        conditions: pairs of an option, such as ``--where``, and the condition that was typed there.
        representations: of sha256, phash, signature and embedding.
        flat: whether it counts which images are flat, by their signatures, where the table has these.
        keys: whether rows are known by their keys: the digest and the hashes need them.
        advice: what to do about a column without numbers; ends its message.
    """

    exact: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    representations: frozenset[str] = frozenset()
    flat: bool = False
    keys: bool = True
    advice: str = "name another column"

    def parsed(self, schema: pa.Schema) -> "list[Condition]":
        """Return the conditions, parsed.

        Raises:
            InputError: naming the option, for one that cannot be understood.
        """
        if not self.conditions:
            return []
        from curate.tables.where import parse_condition  # loads Polars

        return [parse_condition(text, schema, flag=flag) for flag, text in dict.fromkeys(self.conditions)]

    def columns(self, table: Table) -> list[str]:
        """Return the columns to read, each once, key first.

        Raises:
            InputError: for a column that the table lacks, one of the wrong type, or a condition that cannot be used.
        """
        names = [KEY] if self.keys else []
        names += [STATUS] if STATUS in table.schema.names else []
        names += [SIGNATURE] if self.flat and SIGNATURE in table.schema.names else []
        names += [*sorted(self.representations), *self.exact, *self.numbers, *self.groups, *self.names]
        names += [*self.texts, *self.present]
        if any(re.search(rf"\b{FOLDER}\b", text) for _, text in self.conditions):
            table.derive_folder()
        names += [name for condition in self.parsed(table.schema) for name in condition.columns]
        names = list(dict.fromkeys(names))
        if EMBEDDING in self.representations and EMBEDDING not in table.schema.names:
            raise InputError(
                f"{table.path} has no {EMBEDDING!r} column, by which images are compared; score the images "
                "with embeddings, choose your own column with --embedding, or rank by a column with "
                "--strategy score --score COLUMN"
            )
        table.require(names)
        self._check_types(table)
        return names

    def refuse_unread_embeddings(self, table: Table, readers: str) -> None:
        """Refuse a column of user embeddings if none are read, because it would have no effect.

        Args:
            table: that may have one.
            readers: what reads embeddings, for the message.
        """
        if table.embedding_column is not None and EMBEDDING not in self.representations:
            raise InputError(
                f"--embedding {table.embedding_column} is only used with {readers}; add that, or leave --embedding out"
            )

    def _check_types(self, table: Table) -> None:
        require_numbers(table, (*self.exact, *self.numbers), self.advice)
        for expected, columns in (
            ("names or numbers", [*self.groups, *self.names]),
            ("text", [*self.texts, *({SHA256} & self.representations)]),
        ):
            for name in columns:
                if not is_plain(table.schema.field(name).type):
                    _refuse(table, name, expected, "choose another column, or rename it")
        refuse_other_status(table.schema, table.path)
        if PHASH in self.representations and not pa.types.is_integer(table.schema.field(PHASH).type):
            _refuse(table, PHASH, "whole numbers", "score the images again")


def require_numbers(table: Table, names: Iterable[str], advice: str) -> None:
    """Raise InputError for the first of some columns that holds no numbers; `advice` says what to do instead."""
    numeric = [field.name for field in table.schema if is_number(field.type)]
    for name in names:
        if name not in numeric:
            wide = pa.types.is_decimal(table.schema.field(name).type)
            expected = f"numbers of at most {MOST_DIGITS} digits" if wide else "numbers"
            cast = "cast it to decimal128 or float64, or " if wide else ""
            _refuse(table, name, expected, f"{cast}{advice} (numbers: {name_list(numeric, name) or 'none'})")


def refuse_other_status(schema: pa.Schema, path: object) -> None:
    """Raise InputError for a table whose column `status` is not text, and so not of a scored table."""
    if STATUS in schema.names and not is_text(schema.field(STATUS).type):
        raise InputError(
            f"expected text in column {STATUS!r} of {path}, got {schema.field(STATUS).type}; rename it ('ok' or the "
            "kind of failure is written there)"
        )


def _refuse(table: Table, name: str, expected: str, advice: str) -> None:
    kind = table.schema.field(name).type
    raise InputError(f"expected {expected} in column {name!r} of {table.path}, got {kind}; {advice}")


def is_number(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds numbers that are read: whole, floating or decimal of at most 38 digits."""
    is_decimal = bool(pa.types.is_decimal(kind)) and kind.precision <= MOST_DIGITS
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_decimal)


def is_plain(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type can be read as text, which lists and bytes cannot."""
    kind = value_type(kind)
    return not (is_bytes(kind) or pa.types.is_nested(kind))
