"""Conversion of option values for the parts of a command."""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, overload

T = TypeVar("T")


def part_of(kind: type[T], options: object, **others: Any) -> T:
    """Return a dataclass filled from given values, options of the same name, and its defaults, in this order."""
    names = (field.name for field in fields(kind) if field.name not in others)  # type: ignore[arg-type]
    return kind(**{name: getattr(options, name) for name in names if hasattr(options, name)}, **others)


@overload
def several(value: str | Iterable[str] | None) -> tuple[str, ...]: ...


@overload
def several(value: str | Path | Iterable[str | Path] | None) -> tuple[str | Path, ...]: ...


def several(value: str | Path | Iterable[str | Path] | None) -> tuple[str | Path, ...]:
    """Return None, one or several texts or paths as a tuple.

    >>> several("a"), several(["a", "b"]), several(None)
    (('a',), ('a', 'b'), ())
    """
    return (value,) if isinstance(value, str | Path) else tuple(value or ())


def white_of(text: str) -> int | None:
    """Return a typed white level of 16-bit images; None for auto; ValueError for anything else."""
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected auto or an integer for --white, got {text!r}") from None
