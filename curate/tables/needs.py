"""The columns of a table that a policy, strategy or measure needs, and score columns with their direction."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from curate.columns import EMBEDDING, FOLDER, KEY, SIGNATURE, STATUS, describe
from curate.tables.digests import is_bytes, is_text, value_type
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.lookup import name_list
from scoring.relative.columns import FITTED, LOCAL

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


MAX, MIN = "max:", "min:"


@dataclass(frozen=True)
class Signal:
    """A numeric column, and whether high values come first (1) or low ones (-1)."""

    column: str
    sign: int


def signal(text: str, table: Table, *, certain_first: bool, flag: str) -> Signal:
    """Return the column and direction of ``COLUMN``, ``max:COLUMN`` or ``min:COLUMN``.

    Args:
        text: as typed; without ``max:`` or ``min:`` the direction must be known, as for ``kappa_*`` and ``unc_*``.
        table: with the column.
        certain_first: whether the most certain values of a known column come first.
        flag: of the option, for messages.

    Raises:
        InputError: for a missing column, or one of unknown direction.
    """
    for prefix, sign in ((MAX, 1), (MIN, -1)):
        if text.startswith(prefix):
            table.require([text.removeprefix(prefix)])
            return Signal(text.removeprefix(prefix), sign)
    table.require([text])
    higher = describe(text).higher
    if higher not in ("more certain", "less certain"):
        raise InputError(
            f"{flag} {text}: it is unknown whether high or low values come first; write {flag} {MAX}{text} "
            f"for high ones, or {flag} {MIN}{text} for low ones"
        )
    return Signal(text, 1 if (higher == "more certain") == certain_first else -1)


def quality_signal(text: str | None, table: Table) -> Signal:
    """Return the column of image quality: as typed, or the model's score; InputError if there is no unique one."""
    named = text or default_column(table, flag="--quality")
    return signal(named, table, certain_first=True, flag="--quality")


def default_column(table: Table, *, flag: str = "--column", fitted: bool = True) -> str:
    """Return the default score of a table: the fitted one, else that by the model's method, else the only one.

    If a model has several heads, the method in its card, which it was trained for last, is used. Kappa takes precedence
    over uncertainties.

    Args:
        table: scored.
        flag: option for another column, for messages.
        fitted: whether to allow the fitted score, which only rows of the table have.

    Raises:
        InputError: if there is none, or several without the model's; the text lists the candidates.
    """
    if fitted and FITTED in table.schema.names:
        return FITTED
    method = table.noted("model").get("method")
    for name in (f"kappa_{method}", f"unc_{method}"):
        if method and name in table.schema.names:
            return name
    of_dataset = () if fitted else (FITTED, LOCAL)
    for kind in ("kappa", "unc"):
        candidates = [name for name in table.schema.names if name.startswith(f"{kind}_")]
        candidates = [name for name in candidates if name not in of_dataset]
        if len(candidates) == 1:
            return str(candidates[0])
        if candidates:
            raise InputError(
                f"{table.path} has several {kind} columns; choose one with {flag}: {', '.join(candidates)}"
            )
    numbers = [f.name for f in table.schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
    first = "fit a score to it with curate fit" if EMBEDDING in table.schema.names else "score it first"
    other = f", or choose a column of numbers with {flag} (such as: {', '.join(numbers)})" if numbers else ""
    raise InputError(f"{table.path} has no kappa column and no unc column; {first}{other}")


def amount_column(table: Table) -> str:
    """Return the default column for amounts, one that drops an even share of every region of the dataset.

    Dropping by a score of ambiguity itself removes the parts in which everything is hard to recognise, and the rest
    trains worse than as many random rows (docs/fit.md).
    """
    return LOCAL if LOCAL in table.schema.names else default_column(table)


@dataclass(frozen=True)
class Signals:
    """Numeric columns of a selection: ``score`` ranks, ``quality`` guards; losses for small-loss."""

    score: Signal | None = None
    quality: Signal | None = None
    holdout_loss: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read."""
        ranks = [each.column for each in (self.score, self.quality) if each]
        return tuple(dict.fromkeys([*ranks, *([self.holdout_loss] if self.holdout_loss else [])]))


BEST = "kappa_visimsiam"  # of several, the one that reported copies and originals apart best (docs/studies/dedup.md)


def kappa_of(table: Table) -> str | None:
    """Return the kappa of a table: by the model's method, else the most accurate one measured, else the only one.

    None if absent, or if several are equally good.
    """
    kappas = [name for name in table.schema.names if name.startswith("kappa_")]
    for name in (f"kappa_{table.noted('model').get('method')}", BEST):
        if name in kappas:
            return name
    return kappas[0] if len(kappas) == 1 else None
