"""A request for a split, checked against the table; also what the receipt records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from curate.counted import repeated
from curate.policies.dedup.request import DedupRequest, resolved
from curate.policies.request import Request
from curate.policies.split.sides import shares_of
from curate.tables.needs import Needs
from curate.tables.table import Table
from scoring.errors import InputError

PIXELS = "pixels"
COMPARED = ("sha256", "phash", "signature", "embedding")


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
            raise InputError(f"--seed must be a whole number of 64 bits, got {self.seed}; choose another")
        twice = repeated(self.per)
        if twice or self.group in self.per:
            raise InputError(f"{twice[0] if twice else self.group!r} is named twice by --per and --group; name it once")
        object.__setattr__(self, "per", tuple(self.per))

    @property
    def in_strata(self) -> bool:
        """Whether shares are held exactly, and not by the hash alone."""
        return self.exact or bool(self.per)

    def needs(self) -> Needs:
        """Return what has to be read of the table."""
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
        InputError: for a finder that the table has not the columns of, or that reads images again.
    """
    if not duplicates:
        if finder or mirrored:
            option = "--finder" if finder else "--mirrored"
            raise InputError(f"{option} says what a copy is, and --no-duplicates looks for none; leave one of them out")
        return {}, ["copies were not looked for: they may be on two sides"]
    if finder is None and not set(COMPARED) & set(table.schema.names):
        return {}, [f"no column shows copies ({', '.join(COMPARED)}): they may be on two sides"]
    request, few = resolved(DedupRequest({}, mirrored=mirrored), table, finder)
    if PIXELS in request.thresholds:
        raise InputError("--finder pixels reads images again; take bytes, hash or signature, or drop copies by dedup")
    return request.thresholds, [f"copies are found by {', '.join(request.thresholds)} alone"] if few else []
