"""A request for a split: the sides as typed, checked against the table; also what the receipt records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

from curate.counted import repeated
from curate.policies.dedup.request import DedupRequest, resolved
from curate.policies.request import Request
from curate.tables.amount import Amount
from curate.tables.needs import Needs
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.settings import parse_settings

USUAL = ("train", "val", "test")
ROUNDING = Fraction(1, 1000)  # three times 33.3 % is meant as a whole
MOST_SIDES = 100
COMPARED = ("sha256", "phash", "signature", "embedding")


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
            raise InputError(f"--side {name} was given twice, once as --{name}; pass it once")
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
        raise InputError(f"{flag} takes a share, such as 10% or 0.1, got {text}; a number of rows is not a share")
    return share


def percent(share: Fraction | float) -> str:
    """Return a share in words.

    >>> percent(Fraction(1, 8))
    '12.5%'
    """
    return f"{float(share) * 100:.4g}%"


@dataclass(frozen=True)
class SplitRequest(Request):
    """A split, as requested; fields are as in ``SplitOptions``, but for these.

    Attributes:
        sides: name -> share as typed, such as ``80%``.
        thresholds: of the finders of copies, which stay on one side; none looks for no copies.
        without_flat: images of one flat colour are not compared by embedding.
    """

    rule: ClassVar[str] = "split"
    sides: dict[str, str]
    per: tuple[str, ...] = ()
    group: str | None = None
    exact: bool = False
    thresholds: dict[str, float] = field(default_factory=dict)
    mirrored: bool = False
    seed: int = 0
    without_flat: bool = False

    def __post_init__(self) -> None:
        shares_of(self.sides)
        if not -(2**63) <= self.seed < 2**63:
            raise InputError(f"--seed must be a 64-bit integer, got {self.seed}; choose another")
        twice = repeated(self.per)
        if twice or self.group in self.per:
            raise InputError(f"{twice[0] if twice else self.group!r} is given to both --per and --group; pass it once")
        object.__setattr__(self, "per", tuple(self.per))

    @property
    def in_strata(self) -> bool:
        """Whether shares are held exactly, and not by the hash alone."""
        return self.exact or bool(self.per)

    def needs(self) -> Needs:
        """Return the columns and facts to read of the table."""
        names = [*self.per, *([self.group] if self.group else [])]
        finders = DedupRequest(self.thresholds).needs([]) if self.thresholds else Needs()
        return Needs(names=tuple(names), representations=finders.representations, flat=self.without_flat)


def thresholds_in(
    table: Table,
    finder: str | Sequence[str] | Mapping[str, float | None] | None,
    *,
    duplicates: bool,
    mirrored: bool = False,
) -> tuple[dict[str, float], list[str]]:
    """Return the finders of copies with their thresholds, and notes.

    Args:
        table: to split.
        finder: as ``curate dedup`` takes it; None for the default ones.
        duplicates: whether copies are looked for.
        mirrored: whether mirrored ones are copies.

    Raises:
        InputError: for a finder that the table has not the columns of.
    """
    if not duplicates:
        if finder or mirrored:
            option = "--finder" if finder else "--mirrored"
            raise InputError(f"{option} defines copies, and --no-duplicates ignores them; leave one of them out")
        return {}, ["no search for copies: they may be on two sides"]
    if finder is None and not set(COMPARED) & set(table.schema.names):
        return {}, [f"no column to find copies by ({', '.join(COMPARED)}): they may be on two sides"]
    request, few = resolved(DedupRequest({}, mirrored=mirrored), table, finder)
    return request.thresholds, [f"copies are found by {', '.join(request.thresholds)} alone"] if few else []
