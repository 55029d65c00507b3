"""Names that users type, looked up in a literal table."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from scoring.errors import InputError

T = TypeVar("T")


def lookup(table: Mapping[str, T], name: str, *, kind: str) -> T:
    """Return ``table[name]``, or explain what would have worked.

    Raises:
        InputError: if there is no such name; the text holds the closest one and all that exist.

    >>> lookup({"filter": 1}, "filter", kind="command")
    1
    """
    if name in table:
        return table[name]
    close = get_close_matches(name, table, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise InputError(f"unknown {kind} {name!r}{hint} (known: {', '.join(sorted(table))})")
