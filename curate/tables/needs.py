"""The columns of a table that a policy, strategy or measure needs, with their types; checked before reading."""

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
        exact: numbers in the column's precision.
        numbers: numbers as float64.
        groups: names or numbers that group rows; null is a group.
        names: values as text, such as classes; null and empty text are missing.
        texts: text.
        present: columns only checked for missing values.
        conditions: pairs of an option, such as ``--where``, and its condition.
        representations: of sha256, phash, signature and embedding.
        flat: whether to find flat images, by their signatures, if the table has these.
        keys: whether keys are needed, for digest and hashes.
        advice: what to do about a column without numbers; ends the message.
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
        """Return the parsed conditions; InputError, naming the option, for an invalid one."""
        if not self.conditions:
            return []
        from curate.tables.where import parse_condition  # loads Polars

        return [parse_condition(text, schema, flag=flag) for flag, text in dict.fromkeys(self.conditions)]

    def columns(self, table: Table) -> list[str]:
        """Return the distinct columns to read, key first; InputError for missing columns, wrong types or conditions."""
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
        """Raise InputError for a column of user embeddings if embeddings are not read, since it would have no effect.

        ``readers`` are the options that read embeddings, for the message.
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
    """Raise InputError for the first column that is not numeric; ``advice`` is added to the message."""
    numeric = [field.name for field in table.schema if is_number(field.type)]
    for name in names:
        if name not in numeric:
            wide = pa.types.is_decimal(table.schema.field(name).type)
            expected = f"numbers of at most {MOST_DIGITS} digits" if wide else "numbers"
            cast = "cast it to decimal128 or float64, or " if wide else ""
            _refuse(table, name, expected, f"{cast}{advice} (numbers: {name_list(numeric, name) or 'none'})")


def refuse_other_status(schema: pa.Schema, path: object) -> None:
    """Raise InputError for a table whose column ``status`` is not text, so that it is not a scored table."""
    if STATUS in schema.names and not is_text(schema.field(STATUS).type):
        raise InputError(
            f"expected text in column {STATUS!r} of {path}, got {schema.field(STATUS).type}; rename it ('ok' or the "
            "kind of failure is written there)"
        )


def _refuse(table: Table, name: str, expected: str, advice: str) -> None:
    kind = table.schema.field(name).type
    raise InputError(f"expected {expected} in column {name!r} of {table.path}, got {kind}; {advice}")


def is_number(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is a supported number: integer, floating or decimal of at most 38 digits."""
    is_decimal = bool(pa.types.is_decimal(kind)) and kind.precision <= MOST_DIGITS
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_decimal)


def is_plain(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type can be read as text, which lists and bytes cannot."""
    kind = value_type(kind)
    return not (is_bytes(kind) or pa.types.is_nested(kind))
