"""The sides of a split as typed: names and shares that make a whole."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from curate.tables.amount import Amount
from scoring.errors import InputError
from scoring.settings import parse_settings

USUAL = ("train", "val", "test")
ROUNDING = Fraction(1, 1000)  # three times 33.3 % is meant as a whole
MOST_SIDES = 100


def sides_of(shares: Mapping[str, str | float | None], more: Sequence[str] | None) -> dict[str, str]:
    """Return the share of each side as typed.

    Args:
        shares: share of the sides that have their own options; None for none.
        more: further ones as ``NAME=SHARE``.

    Raises:
        InputError: for a side that is there twice, or a text that is no ``NAME=SHARE``.
    """
    sides = {name: str(share) for name, share in shares.items() if share is not None}
    for name, share in parse_settings(more or [], flag="--side", example="dev=5%").items():
        if name in sides:
            raise InputError(f"--side {name} was given twice, once by --{name}; give it once")
        sides[name] = share
    return sides


def shares_of(sides: Mapping[str, str]) -> dict[str, Fraction]:
    """Return the shares of sides, which sum to 1.

    Raises:
        InputError: for fewer than two sides, a share that is invalid, or shares that are no whole; says by how much.
    """
    if not 2 <= len(sides) <= MOST_SIDES:
        raise InputError(
            f"expected shares of 2 to {MOST_SIDES} sides, got {len(sides)}; write them like: --train 80% --val 10% "
            "--test 10%"
        )
    shares = {name: _share(name, text) for name, text in sides.items()}
    total = sum(shares.values(), Fraction(0))
    if abs(total - 1) > ROUNDING:
        listed = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
        over = f"{percent(total - 1)} too much" if total > 1 else f"{percent(1 - total)} is missing"
        raise InputError(f"the shares sum to {percent(total)} ({listed}), expected 100%: {over}")
    return {name: share / total for name, share in shares.items()}


def _share(name: str, text: str) -> Fraction:
    flag = f"--{name}" if name in USUAL else f"--side {name}"
    share = Amount.parse(text, flag).share
    if share is None:
        raise InputError(f"{flag} takes a share, such as 10% or 0.1, got {text}; a count of rows is not one")
    return share


def percent(share: Fraction | float) -> str:
    """Return a share in words.

    >>> percent(Fraction(1, 8))
    '12.5%'
    """
    return f"{float(share) * 100:.4g}%"
