"""From a strategy as typed, name and parameters, to a selector, restricted by quality if requested."""

from collections.abc import Mapping
from dataclasses import fields, replace

from curate.selectors.contract import Selector
from curate.selectors.pool import Pool
from curate.selectors.ranked import Discounted, Ranked, gate
from curate.selectors.table import selector_named
from scoring.errors import InputError
from scoring.settings import with_settings

SAFE_GATE = 0.2  # of the noise guard


def make_selector(name: str, settings: Mapping[str, object] | None = None) -> Selector:
    """Return a selector with its own parameters.

    Args:
        name: a key of ``SELECTORS``.
        settings: parameter -> value, or its text as typed.

    Raises:
        InputError: for an unknown strategy or parameter, or a value that is not of its type or range.
    """
    return with_settings(selector_named(name), settings, name=name, what="strategy")


def settings_of(selector: Selector) -> dict[str, object]:
    """Return all parameters of a selector, defaults too, as plain JSON."""
    return {field.name: getattr(selector, field.name) for field in fields(selector)}  # type: ignore[arg-type]


def can_discount(selector: Selector) -> bool:
    """Return whether quality can lower the rank or the weight of a strategy's rows."""
    return "quality" in selector.optional or isinstance(selector, Ranked)


def guard(
    pool: Pool, name: str, selector: Selector, *, least: float = 0.0, discount: bool = False
) -> tuple[Pool, Selector, list[str]]:
    """Return the pool and the selector with quality used as requested.

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
    if "quality" in selector.optional:
        return pool, selector, notes
    if isinstance(selector, Ranked):
        return pool, Discounted(selector), notes
    raise InputError(
        "--discount works with strategies that rank by a score (margin, entropy, ...) or weigh rows (auto), got "
        f"{name}; use --gate"
    )
