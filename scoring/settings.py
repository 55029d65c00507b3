"""Parameters typed as NAME=VALUE, and dataclasses made from them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from scoring.errors import InputError
from scoring.lookup import closest

T = TypeVar("T")

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", type(None): "none", str: "text"}


def require_between(
    option: str, value: float | None, least: float, most: float | None = None, hint: str = "", *, unit: str = ""
) -> None:
    """Raise InputError for a number below ``least`` or above ``most``; None is accepted.

    ``option`` names it as typed, ``hint`` says what to do, and ``unit`` follows the bounds.
    """
    if value is None or (value >= least and (most is None or value <= most)):
        return
    bounds = f"at least {least:,.10g}" if most is None else f"between {least:,.10g} and {most:,.10g}"
    got = f"{value:,}" if isinstance(value, int) else f"{value:g}"
    raise InputError(f"{option} must be {bounds}{unit and ' '}{unit}, got {got}{hint and '; '}{hint}")


def require_seed(seed: int) -> None:
    """Raise InputError for a seed that is not in [0, 2^31)."""
    require_between("--seed", seed, 0, 2**31 - 1, "choose another")


def parse_settings(texts: Iterable[str], *, flag: str = "--set", example: str = "bandwidth=0.4") -> dict[str, str]:
    """Return the values typed as NAME=VALUE by name, stripped of spaces.

    Args:
        texts: one setting each.
        flag: name of the option, for messages.
        example: a valid setting, for messages.

    Raises:
        InputError: for a text without ``=`` or without a name, or a name that comes twice.

    >>> parse_settings(["bandwidth=0.4", "start = a=b"])
    {'bandwidth': '0.4', 'start': 'a=b'}
    """
    settings: dict[str, str] = {}
    for text in texts:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not sign or not name:
            raise InputError(f"{flag} takes NAME=VALUE, such as {example}, got {text!r}")
        if name in settings:
            raise InputError(f"{flag} {name} was given twice; pass it once")
        settings[name] = value
    return settings


def with_settings(
    kind: type[T], settings: Mapping[str, object] | None = None, *, name: str, what: str, others: Sequence[str] = ()
) -> T:
    """Return a dataclass with some fields set and defaults for the rest.

    Args:
        kind: a dataclass whose fields are of type int, float, bool, str or one of these or None.
        settings: field -> value, or its text as typed.
        name: name of this kind for messages: "herding".
        what: category of the kind: "strategy".
        others: parameters of all kinds, for suggestions.

    Raises:
        InputError: for an unknown name, or a value of another type, or that ``kind`` refuses.
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    values: dict[str, object] = {}
    for setting, value in (settings or {}).items():
        if setting not in known:
            raise InputError(
                f"the {what} {name} has no parameter {setting!r}{closest(setting, [*known, *others])} "
                f"(its parameters: {', '.join(known) or 'none'})"
            )
        values[setting] = _typed(f"{name}'s {setting}", value, hints[setting])
    return kind(**values)


def _typed(what: str, value: object, hint: Any) -> object:
    """Return a value converted to the type of a field."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    text = str(value)
    if type(None) in kinds and (value is None or text == "none"):
        return None
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if str in kinds and value is not None:
        return text
    for kind, pattern in ((int, _INTEGER), (float, _NUMBER)):
        if kind in kinds and pattern.fullmatch(text):
            return kind(text)
    raise InputError(f"{what} takes {' or '.join(_KINDS[kind] for kind in kinds)}, got {value!r}")
