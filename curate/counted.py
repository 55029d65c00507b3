"""Text for people: a number and its noun as one says it (1 image, 2 images), columns, lines that stay lines."""

from collections.abc import Iterable, Sequence


def counted(n: int, one: str, many: str | None = None) -> str:
    """Return a count in words.

    Args:
        n: how many.
        one: what follows 1, a noun or more: "image", "image is left".
        many: what follows any other number; None for ``one`` with an s.

    >>> counted(1, "class", "classes"), counted(2_500, "image"), counted(0, "is left", "are left")
    ('1 class', '2,500 images', '0 are left')
    """
    return f"{n:,} {one if n == 1 else many if many is not None else one + 's'}"


def one_line(text: object) -> str:
    """Return text that cannot break a line or command the terminal: control characters are spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in str(text))


def aligned(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as lines of columns for people: counts to the right with thousands separators, words to the left.

    Args:
        rows: each of as many values; control characters are spelled out.

    >>> print(aligned([("kept", 1200, ""), ("dropped", 3, "--max 0.5")]))
    kept     1,200
    dropped      3  --max 0.5
    """
    rows = list(rows)
    lines = [[f"{value:,}" if isinstance(value, int) else one_line(value) for value in row] for row in rows]
    right = [all(isinstance(value, int) for value in column) for column in zip(*rows, strict=True)]
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, wide, right, strict=True)
        ).rstrip()
        for line in lines
    )
