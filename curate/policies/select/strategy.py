"""A strategy as typed, a name and its own parameters -> a selector, guarded by quality where that is asked."""

from collections.abc import Mapping
from dataclasses import fields, replace

from curate.selectors import SELECTORS, Pool, Selector
from curate.selectors.mixing import Discounted, gate
from curate.selectors.scores import SCORES
from scoring.errors import InputError
from scoring.lookup import lookup
from scoring.settings import with_settings

WEIGHS = ("auto", "pairwise", "badge")  # strategies in which a row counts its quality
HEEDS = ("auto", "pairwise", "prob-cover")  # strategies that use class probabilities where there are any
SAFE_GATE = 0.2  # of the noise guard


def make_selector(name: str, settings: Mapping[str, object] | None = None) -> Selector:
    """Return a selector with its own parameters.

    Args:
        name: a key of ``SELECTORS``.
        settings: parameter -> value, or its text as typed.

    Raises:
        InputError: for an unknown strategy or parameter, or a value that is not of its type or range.
    """
    kind: type[Selector] = lookup(SELECTORS, name, kind="strategy")
    return with_settings(kind, settings, name=name, what="strategy")


def settings_of(selector: Selector) -> dict[str, object]:
    """Return all parameters of a selector, defaults too, as plain JSON."""
    return {field.name: getattr(selector, field.name) for field in fields(selector)}  # type: ignore[arg-type]


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
