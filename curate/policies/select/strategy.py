"""A strategy as typed, a name and its own parameters -> a selector, guarded by quality where that is asked."""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from curate.columns import closest
from curate.selectors import SELECTORS, Pool, Selector
from curate.selectors.mixing import Discounted, gate
from curate.selectors.scores import SCORES
from scoring.errors import InputError
from scoring.lookup import lookup

WEIGHS = ("auto", "pairwise", "badge")  # strategies in which a row counts its quality
HEEDS = ("auto", "pairwise", "prob-cover")  # strategies that use class probabilities where there are any
SAFE_GATE = 0.2  # of the noise guard
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def make_selector(name: str, settings: Mapping[str, object] | None = None) -> Selector:
    """Return a selector with its own parameters.

    Args:
        name: a key of ``SELECTORS``.
        settings: parameter -> value, or its text as typed.

    Raises:
        InputError: for an unknown strategy or parameter, or a value that is not of its type or range.
    """
    kind: Any = lookup(SELECTORS, name, kind="strategy")
    known = [field.name for field in fields(kind)]
    hints = get_type_hints(kind)
    values: dict[str, object] = {}
    for setting, value in (settings or {}).items():
        if setting not in known:
            raise InputError(
                f"the strategy {name} has no parameter {setting!r}{closest(setting, known)} "
                f"(its parameters: {', '.join(known) or 'none'})"
            )
        values[setting] = _value(f"{name}'s {setting}", value, hints[setting])
    made: Selector = kind(**values)
    return made


def settings_of(selector: Selector) -> dict[str, object]:
    """Return all parameters of a selector, defaults too, as plain JSON."""
    return {field.name: getattr(selector, field.name) for field in fields(selector)}  # type: ignore[arg-type]


def _value(what: str, value: object, hint: Any) -> object:
    """Return a value as the type that a parameter has; text is read."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    text = str(value)
    if type(None) in kinds and (value is None or text == "none"):
        return None
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if str in kinds and value is not None:
        return text
    for kind, pattern in ((int, _WHOLE), (float, _NUMBER)):
        if kind in kinds and pattern.fullmatch(text):
            return kind(text)
    words = {int: "a whole number", float: "a number", bool: "true or false", type(None): "none", str: "text"}
    raise InputError(f"{what} takes {' or '.join(words[kind] for kind in kinds)}, got {value!r}")


def can_discount(name: str, selector: Selector) -> bool:
    """Return whether quality can lower the rank or the weight of a strategy's rows."""
    return name in WEIGHS or (name != "mixed" and getattr(selector, "score", None) in SCORES)


def guard(
    pool: Pool, name: str, selector: Selector, *, least: float = 0.0, discount: bool = False
) -> tuple[Pool, Selector, list[str]]:
    """Return the pool, and the selector, that heed quality as asked.

    Args:
        pool: with quality where ``least`` or ``discount`` asks for it.
        name: of the strategy.
        selector: what picks.
        least: the gate: candidates whose quality is in this lowest share are left out; 0 for none.
        discount: whether quality lowers ranks and weights.

    Returns:
        pool, selector, notes.

    Raises:
        InputError: if the strategy cannot be discounted, or the gate leaves nothing.
    """
    notes: list[str] = []
    if least:
        before = len(pool.candidates)
        pool = gate(pool, least)
        notes.append(f"the gate at {least:g} left out {before - len(pool.candidates):,} of {before:,} candidates")
    if not discount:
        return replace(pool, quality=None), selector, notes
    if not can_discount(name, selector):
        raise InputError(
            "--discount works with strategies that rank by a score (margin, entropy, power, ...) or weigh rows "
            f"({', '.join(WEIGHS)}), got {name}; use --gate"
        )
    return pool, selector if name in WEIGHS else Discounted(selector), notes
