"""Conversion of JSON to dataclasses by type hints, and of results to plain JSON."""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from scoring.errors import InputError
from scoring.lookup import closest

T = TypeVar("T")
WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "nothing"}


def from_json(kind: type[T], value: object, *, what: str, ignored: Collection[str] = (), complete: bool = False) -> T:
    """Return a dataclass from the JSON object of its fields.

    Every field is checked by its type hint: ``str``, ``int``, ``float`` (integers too), ``bool``, ``None``,
    ``Literal``, ``list``, ``tuple[..., ...]`` (written as a list), ``dict`` by text, another dataclass, ``Any`` and
    unions of these. The dataclass checks ranges itself.

    Args:
        kind: the dataclass.
        value: parsed JSON.
        what: description for messages: "the rule of the receipt".
        ignored: names in the object that are no fields.
        complete: whether fields with a default are required too.

    Raises:
        InputError: if it is no object, or a field is missing, unknown or of another type.
    """
    if not isinstance(value, Mapping):
        raise InputError(f"expected {what} as a JSON object, got {_short(value)}; restore it from a backup")
    hints, known = get_type_hints(kind), fields(kind)  # type: ignore[arg-type]
    names = [each.name for each in known]
    for name in sorted(map(str, set(value) - {*names, *ignored})):
        raise InputError(
            f"{what} has {name!r}, which this version does not know{closest(name, names)}; restore a backup, "
            "or use the version that wrote it"
        )
    arguments = {}
    for each in known:
        if each.init and each.name in value:
            arguments[each.name] = read_value(value[each.name], hints[each.name], what=f"{each.name} of {what}")
        elif each.init and (complete or (each.default is MISSING and each.default_factory is MISSING)):
            raise InputError(f"{what} has no {each.name!r}; restore a backup, or use the version that wrote it")
    return kind(**arguments)


def read_value(value: object, hint: Any, *, what: str) -> Any:
    """Return a JSON value as the type of a hint, as in ``from_json``; InputError for another type.

    >>> read_value([1, 2], tuple[float, ...], what="budgets of the replay")
    (1.0, 2.0)
    """
    kind = next((each for each in _alternatives(hint) if _fits(value, each)), None)
    if kind is None:
        raise InputError(f"expected {_words(hint)} as {what}, got {_short(value)}; restore it from a backup")
    origin, args = get_origin(kind) or kind, get_args(kind)
    if origin in (list, tuple) and args:
        return origin(read_value(item, args[0], what=what) for item in value)  # type: ignore[attr-defined]
    if origin is dict and args:
        return {name: read_value(item, args[1], what=f"{name} in {what}") for name, item in value.items()}  # type: ignore[attr-defined]
    if is_dataclass(kind):
        return from_json(kind, value, what=what)  # type: ignore[arg-type]
    return float(value) if kind is float else value  # type: ignore[arg-type]


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _fits(value: object, kind: Any) -> bool:
    """Return whether a value has the outer type of a hint other than a union."""
    origin = get_origin(kind) or kind
    if origin is Any:
        return True
    if origin is Literal:
        return value in get_args(kind)
    if origin is float:
        return isinstance(value, float) or (type(value) is int and abs(value) < 1 << 1023)
    if origin is int:
        return type(value) is int
    if origin is tuple:
        return isinstance(value, list | tuple)
    if is_dataclass(origin):
        return isinstance(value, Mapping)
    if origin is dict:
        return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
    return isinstance(value, origin)


def _words(hint: Any) -> str:
    """Return a type as text.

    >>> _words(float | None), _words(list[str])
    ('a number or nothing', 'a list')
    """
    words = []
    for kind in _alternatives(hint):
        origin = get_origin(kind) or kind
        if origin is Literal:
            words += [repr(each) for each in get_args(kind)]
        else:
            words.append(WORDS.get(origin, "a list" if origin in (list, tuple) else "a JSON object"))
    return " or ".join(words)


def _short(value: object) -> str:
    return repr(value)[:60]


def plain_json(value: Any) -> Any:
    """Return dataclasses, named tuples and arrays as plain JSON values; NaN and infinity become null.

    >>> plain_json({"cut": float("nan"), 1: (2, 3)})
    {'cut': None, '1': [2, 3]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain_json(each) for name, each in value.items()}
    if hasattr(value, "_asdict"):
        return plain_json(value._asdict())
    if isinstance(value, list | tuple):
        return [plain_json(each) for each in value]
    if hasattr(value, "tolist"):  # of NumPy, one number or many
        return plain_json(value.tolist())
    return None if isinstance(value, float) and not isfinite(value) else value
