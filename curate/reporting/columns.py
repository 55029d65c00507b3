"""Selection of the columns that a report shows, and the data that it reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY, SIGNATURE, STATUS, THUMBNAIL, URI, describe
from curate.tables.digests import redrawn
from curate.tables.keys import HashIndex
from curate.tables.needs import PHASH, SHA256, Needs, default_column, is_number, is_plain, signal
from curate.tables.rows import Codes, read_rows
from curate.tables.table import Table
from scoring.errors import InputError

MOST_TEXT = 200  # characters of a text that is no key
SCORE, NUMBER, TEXT, CLASS = "score", "number", "text", "class"
NOT_SHOWN = {
    KEY,
    URI,
    STATUS,
    EMBEDDING,
    SIGNATURE,
    THUMBNAIL,
    PHASH,
    SHA256,
}  # columns that are shown elsewhere, or not readable
TAKEN = {"n", "row", KEY, "path", STATUS, "decision", "reason"}  # names used by the report
DIRECTION = {"more certain": 1, "less certain": -1}
MOST = 80  # columns


@dataclass(frozen=True)
class Shown:
    """A column as a report shows it.

    Attributes:
        column: its name in the table.
        kind: ``score``, ``number``, ``text`` or ``class``.
        direction: 1 if higher is more certain, -1 if less, 0 if neither.
        words: its meaning.
        integer: whether its values are integers.
    """

    column: str
    kind: str
    direction: int
    words: str
    integer: bool

    @property
    def name(self) -> str:
        """Its name in a report; prefixed if the report has a column of that name."""
        return f"u:{self.column}" if self.column in TAKEN or self.column.startswith("u:") else self.column

    @property
    def is_number(self) -> bool:
        """Whether it has a histogram."""
        return self.kind in (SCORE, NUMBER)

    def to_json(self) -> dict[str, Any]:
        """Return the facts for the page."""
        shown = {name: getattr(self, name) for name in ("kind", "direction", "words", "integer")}
        return {"name": self.name, "label": self.column, **shown}


def shown_columns(table: Table, class_column: str | None) -> tuple[list[Shown], list[str]]:
    """Return the columns to show, scores first, and the names of columns beyond the limit."""
    shown = [each for field in table.schema if (each := _shown(field, class_column)) is not None]
    order = {SCORE: 0, CLASS: 1, NUMBER: 2, TEXT: 3}
    shown.sort(key=lambda each: order[each.kind])
    return shown[:MOST], [each.column for each in shown[MOST:]]


def _shown(field: pa.Field, class_column: str | None) -> Shown | None:
    if (field.name in NOT_SHOWN and field.name != class_column) or not (is_plain(field.type) or is_number(field.type)):
        return None
    about = describe(field.name)
    words = f"{about.meaning} ({about.unit})" if about.unit not in ("", "1") else about.meaning
    direction = DIRECTION.get(about.higher, 0)
    integer = bool(pa.types.is_integer(field.type))
    if field.name == class_column:
        return Shown(field.name, CLASS, 0, words, integer)
    if is_number(field.type):
        kind = SCORE if direction else NUMBER
        return Shown(field.name, kind, direction, words, integer)
    return Shown(field.name, TEXT, 0, words, False)


def shortened(text: str) -> str:
    """Return a user's text cut at ``MOST_TEXT`` characters.

    >>> len(shortened("x" * 1000)), shortened("cat")
    (200, 'cat')
    """
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def default_score(table: Table, column: str | None, columns: Sequence[Shown]) -> tuple[Shown | None, str]:
    """Return the score that orders rows by certainty, and notes on the choice.

    Args:
        table: with the column.
        column: as typed: ``COLUMN``, ``max:COLUMN`` or ``min:COLUMN``; None for the table's default.
        columns: the columns to show.

    Raises:
        InputError: if the typed column cannot be used.
    """
    numbers = {each.column: each for each in columns if each.is_number}
    if column is not None:
        chosen = signal(column, table, certain_first=True, flag="--column")
        if chosen.column not in numbers:
            raise InputError(
                f"--column {chosen.column}: expected a column of numbers; the table has: {', '.join(numbers)}"
            )
        numeric = numbers[chosen.column]
        return Shown(numeric.column, numeric.kind, chosen.sign, numeric.words, numeric.integer), ""
    try:
        return numbers.get(default_column(table)), ""
    except InputError:
        scores = [each for each in columns if each.kind == SCORE]
        if not scores:
            return None, "the table has no score: its rows cannot be ranked"
        return scores[0], f"rows are determined by {scores[0].column}; choose another score with --column"


FORMAT = "format"
PURPOSE = "report"
NONE = Codes(np.zeros(0, np.int32))


@dataclass(frozen=True)
class Dataset:
    """A table of N rows, about 30 bytes per row.

    Attributes:
        table: as opened.
        ok: whether the image was scored, shape (N,).
        draw: a hash of the keys, shape (N,) uint64; samples are the rows with the lowest hashes.
        digest: of the columns read, independent of the row order.
        status: codes; empty if the table has none.
        format: codes; empty if the table has none.
        classes: codes; empty without a class column.
        class_column: name of the class column; None without one.
        index: of the key hashes.
    """

    table: Table
    ok: NDArray[np.bool_]
    draw: NDArray[np.uint64]
    digest: str
    status: Codes
    format: Codes
    classes: Codes
    class_column: str | None
    index: HashIndex

    @property
    def n(self) -> int:
        """Number N of rows."""
        return len(self.ok)

    def find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the row of each key hash, shape (M,); -1 if absent."""
        return self.index.find(hashes)

    def drawn(self, n: int) -> NDArray[np.int64]:
        """Return up to n rows with the lowest key hashes; a smaller sample is the start of a larger one."""
        least = np.argpartition(self.draw, n)[:n] if n < self.n else np.arange(self.n)
        return least[np.argsort(self.draw[least], kind="stable")]


def read_dataset(table: Table, class_column: str | None, *, seed: int = 0) -> Dataset:
    """Read the columns that a report needs for all rows.

    Args:
        table: with a unique ``key``.
        class_column: a column of single values; None for none.
        seed: of the sample.

    Raises:
        InputError: for missing or repeated keys, or an unusable column.
    """
    table.require([class_column] if class_column else [])
    plain = [
        name for name in (STATUS, FORMAT) if name in table.schema.names and is_plain(table.schema.field(name).type)
    ]
    names = tuple(dict.fromkeys([*plain, *([class_column] if class_column else [])]))
    rows = read_rows(table, Needs(names=names))
    status, formats, classes = (rows.names.get(name, NONE) for name in (STATUS, FORMAT, class_column or ""))
    return Dataset(
        table,
        rows.ok,
        redrawn(rows.hashes, seed, PURPOSE),
        rows.digest,
        status,
        formats,
        classes,
        class_column,
        HashIndex(rows.hashes),
    )
