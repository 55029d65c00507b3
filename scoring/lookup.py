"""Lookup of names that users type."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher, get_close_matches
from importlib import import_module
from typing import Any, TypeVar

from scoring.errors import InputError

T = TypeVar("T")
MOST_LISTED = 12  # names in a message


def lookup(table: Mapping[str, T], name: str, *, kind: str) -> T:
    """Return ``table[name]``; InputError with the closest and all valid names if there is none.

    >>> lookup({"filter": 1}, "filter", kind="command")
    1
    """
    if name in table:
        return table[name]
    raise InputError(f"unknown {kind} {name!r}{closest(name, table)} (known: {', '.join(sorted(table))})")


def require_known(name: str, known: Iterable[str], said: str, listed: str = "known", advice: str = "") -> None:
    """Raise InputError unless a name is among the known ones, with the closest and the known names.

    >>> require_known("labl", ["key", "label"], "a.csv has no column", "columns")
    Traceback (most recent call last):
    scoring.errors.InputError: a.csv has no column 'labl'; did you mean 'label'? (columns: key, label)
    """
    names = list(known)
    if name not in names:
        more = f"{listed}: {name_list(names, name)}"
        raise InputError(f"{said} {name!r}{closest(name, names)} ({more}){advice and '; '}{advice}")


class Lazy(Mapping[str, T]):
    """A table whose entries are imported when they are used.

    Args:
        where: name -> ``"package.module:attribute"``; may be extended later.

    >>> Lazy({"join": "posixpath:join"})["join"]("a", "b")
    'a/b'
    """

    def __init__(self, where: Mapping[str, str]) -> None:
        self.where = where

    def __getitem__(self, name: str) -> T:
        entry: T = attribute(self.where[name])
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self.where

    def __iter__(self) -> Iterator[str]:
        return iter(self.where)

    def __len__(self) -> int:
        return len(self.where)


def attribute(where: str) -> Any:
    """Return the object named ``"package.module:attribute"``, imported now."""
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)


def closest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for a mistyped name, or an empty text.

    >>> closest("labl", ["key", "label"])
    "; did you mean 'label'?"
    >>> closest("WIDTH", ["width", "height"])
    "; did you mean 'width'?"
    >>> closest("lable", ["table", "label"])
    "; did you mean 'label'?"
    """
    names = list(known)
    close = [each for each in names if each.casefold() == name.casefold()] or get_close_matches(name, names)
    close.sort(key=lambda each: sorted(each) != sorted(name))  # swapped letters first
    return f"; did you mean {close[0]!r}?" if close else ""


def name_list(known: Iterable[str], near: str = "") -> str:
    """Return names for a message: all if few, else the nearest first and the number of others.

    >>> name_list(["key", "label"], "labl")
    'key, label'
    >>> name_list([f"c{number}" for number in range(100)], "c42").split(", ")[0]
    'c42'
    """
    names = list(known)
    if len(names) <= MOST_LISTED:
        return ", ".join(names)
    matcher = SequenceMatcher(b=near)

    def likeness(name: str) -> float:
        matcher.set_seq1(name)
        return matcher.ratio()

    some = sorted(names, key=likeness, reverse=True)[:MOST_LISTED] if near else names[:MOST_LISTED]
    return f"{', '.join(some)} and {len(names) - len(some):,} more"
