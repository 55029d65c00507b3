"""Text for display: counts with nouns (1 image, 2 images), aligned columns, single lines."""

import html
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


def counted(n: int, singular: str, many: str | None = None) -> str:
    """Return a count with its noun.

    Args:
        n: the count.
        singular: text after 1, a noun or more: "image", "image is left".
        many: text after other numbers; None for ``singular`` with an s.

    >>> counted(1, "class", "classes"), counted(2_500, "image"), counted(0, "is left", "are left")
    ('1 class', '2,500 images', '0 are left')
    """
    return f"{n:,} {singular if n == 1 else many if many is not None else singular + 's'}"


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, sorted.

    >>> repeated(["b", "a", "b", "c", "a"])
    ['a', 'b']
    """
    return sorted(name for name, n in Counter(names).items() if n > 1)


def listed(names: Iterable[str], most: int) -> str:
    """Return the first names for a message, and whether there are more.

    >>> listed("abc", 2), listed("abc", 3)
    ('a, b, ...', 'a, b, c')
    """
    names = list(names)
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def single_line(text: object) -> str:
    """Return text with control characters escaped, so that it cannot break a line or control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in str(text))


@dataclass
class Reading:
    """A pass over a table: its name, its number of rows, and how many of them were read."""

    table: str
    n_rows: int
    done: int = 0

    def __str__(self) -> str:
        return f"{self.done:,} of {self.n_rows:,} rows of {self.table} read"


READINGS: list[Reading] = []  # passes in progress, the latest last


@contextmanager
def reading(table: str, n_rows: int) -> Iterator[Reading]:
    """Yield a pass that is listed in ``READINGS`` until it ends, for messages of a command that works long."""
    READINGS.append(this := Reading(table, n_rows))
    try:
        yield this
    finally:
        READINGS[:] = [each for each in READINGS if each is not this]


def aligned(rows: Iterable[Sequence[object]], *, right: Container[int] | None = None) -> str:
    """Return rows as lines of aligned columns: counts to the right with thousands separators, words to the left.

    Args:
        rows: of equal length; control characters are escaped.
        right: indices of right-aligned columns; None for columns that contain only counts.

    >>> print(aligned([("kept", 1200, ""), ("dropped", 3, "--max 0.5")]))
    kept     1,200
    dropped      3  --max 0.5
    """
    rows = list(rows)
    lines = [[f"{value:,}" if isinstance(value, int) else single_line(value) for value in row] for row in rows]
    if right is None:
        right = {
            number
            for number, column in enumerate(zip(*rows, strict=True))
            if all(isinstance(value, int) for value in column)
        }
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if number in right else text.ljust(width)
            for number, (text, width) in enumerate(zip(line, wide, strict=True))
        ).rstrip()
        for line in lines
    )


@dataclass(frozen=True)
class Grid:
    """Rows that are printed as columns.

    Attributes:
        rows: of equal length.
        header: a title for each column, or empty.
        right: index of the right-aligned column, including its title.
    """

    rows: Sequence[Sequence[object]]
    header: Sequence[str] = ()
    right: int | None = None

    def __str__(self) -> str:
        """Return one line per row, of any width."""
        lines = [self.header, *self.rows] if self.header else self.rows
        return aligned(lines, right=() if self.right is None else (self.right,))


class Printed(ABC):
    """A result with the same text in Python, in a notebook, and in its command's output."""

    @abstractmethod
    def lines(self) -> list[str | Grid]:
        """Return the printed lines, from the top."""

    def __str__(self) -> str:
        """Return the lines as text without control characters except line ends."""
        return "\n".join(str(line) if isinstance(line, Grid) else single_line(line) for line in self.lines())

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        return f"<pre>{html.escape(str(self))}</pre>"
