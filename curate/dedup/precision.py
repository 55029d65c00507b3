"""What answers say of a run: how many of the dropped pairs are the same."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from curate.dedup.answers import DIFFERENT, SAME, UNSURE, Answers, Judged
from curate.dedup.audit import DROPPED, NEAR, StratumName
from scoring.errors import InputError
from scoring.metrics import Interval
from scoring.metrics.proportions import Stratum, stratified_interval

LEVEL = 0.95


@dataclass(frozen=True)
class Counted:
    """A stratum and what was said of the pairs drawn from it.

    Attributes:
        name: of the stratum.
        size: pairs in it.
        drawn: of them.
        same: answers; likewise the next two.
        different: see ``same``.
        unsure: see ``same``.
    """

    name: StratumName
    size: int
    drawn: int
    same: int
    different: int
    unsure: int

    @property
    def blank(self) -> int:
        """Pairs without an answer."""
        return self.drawn - self.same - self.different - self.unsure

    def sample(self, *, unsure: str) -> Stratum:
        """Return the sample; ``unsure`` says how an unsure answer is read: ``same`` or ``different``."""
        yes = self.same + (self.unsure if unsure == SAME else 0)
        return Stratum(self.size, self.same + self.different + self.unsure, yes)


def count_answers(answers: Answers) -> list[Counted]:
    """Return the strata of an audit: by finder, dropped ones first, from the threshold outward.

    Raises:
        InputError: if weights of a stratum disagree: a line was changed, or belongs to another audit.
    """
    strata: dict[StratumName, list[Judged]] = {}
    for one in answers.judged:
        strata.setdefault(one.pair.stratum, []).append(one)
    out = []
    for name, members in sorted(strata.items(), key=lambda item: (item[0].finder, item[0].side, item[0].number)):
        weights = {one.pair.weight for one in members}
        size = round(members[0].pair.weight * len(members))
        if max(weights) - min(weights) > 1e-6 * max(weights) or abs(size - max(weights) * len(members)) > 1e-3:
            raise InputError(
                f"{answers.path}: expected {len(members)} equal weights in the stratum {str(name)!r} that make a whole "
                f"number of pairs, got {', '.join(f'{w:g}' for w in sorted(weights)[:3])}; draw the audit again"
            )
        said = Counter(one.answer for one in members)
        out.append(Counted(name, size, len(members), said[SAME], said[DIFFERENT], said[UNSURE]))
    return out


@dataclass(frozen=True)
class Share:
    """A share of pairs that are the same, with its 95 % interval, in both readings of an unsure answer.

    Attributes:
        pairs: that it is a share of.
        strict: an unsure pair counts as different.
        lenient: an unsure pair counts as the same.
    """

    pairs: int
    strict: Interval
    lenient: Interval

    def words(self) -> str:
        """Return both readings, or one where they are the same."""

        def of(one: Interval) -> str:
            value = "unknown" if isnan(one.value) else f"{one.value:.3f}"
            return f"{value} (95 %: {one.low:.3f} to {one.high:.3f})"

        if self.strict == self.lenient:
            return of(self.strict)
        return f"{of(self.strict)} if unsure ones are different, {of(self.lenient)} if they are the same"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; an estimate that cannot be had is null."""
        readings = {"strict": self.strict, "lenient": self.lenient}
        return {"pairs": self.pairs} | {
            name: {"value": None if isnan(one.value) else one.value, "low": one.low, "high": one.high}
            for name, one in readings.items()
        }


@dataclass(frozen=True)
class Precision:
    """What an audit says of a run.

    Attributes:
        dropped: share of the dropped pairs that are the same: the precision; None where none was drawn.
        by_finder: the same for each finder's pairs.
        near: share of the pairs just short of the threshold that are the same: what is missed; None where none was
            drawn.
        strata: every stratum and its answers; they add up to the pairs drawn.
    """

    dropped: Share | None
    by_finder: dict[str, Share]
    near: Share | None
    strata: list[Counted]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "dropped": self.dropped and self.dropped.to_json(),
            "by_finder": {name: share.to_json() for name, share in self.by_finder.items()},
            "near": self.near and self.near.to_json(),
            "strata": [{**asdict(one), "name": str(one.name), "blank": one.blank} for one in self.strata],
        }

    def lines(self) -> list[str]:
        """Return what was found, one sentence a line; the counts add up to the pairs drawn."""
        count = {
            name: sum(getattr(one, name) for one in self.strata) for name in ("drawn", SAME, DIFFERENT, UNSURE, "blank")
        }
        out = [
            f"{count['drawn']:,} pairs drawn: {count[SAME]:,} same, {count[DIFFERENT]:,} different, "
            f"{count[UNSURE]:,} unsure, {count['blank']:,} without an answer"
        ]
        if count["blank"]:
            out.append("pairs without an answer count as not drawn, which is right if they were left out by chance")
        if self.dropped is not None:
            out.append(f"of {self.dropped.pairs:,} dropped pairs the same: {self.dropped.words()}")
        if len(self.by_finder) > 1:
            out += [f"  by {name}, of {one.pairs:,}: {one.words()}" for name, one in self.by_finder.items()]
        if self.near is not None:
            out.append(f"of {self.near.pairs:,} pairs just short of the threshold the same: {self.near.words()}")
        return out


def precision(answers: Answers) -> Precision:
    """Return the precision of what a run dropped, weighted by what each pair stands for.

    The interval holds 95 % whatever the shares of the strata are, for each reading: it comes from tests whose error is
    bounded for every population (see ``p_value_at_most``), not from a normal approximation, which promises too much
    where all answers are yes. It is for the pairs of this run, not for pairs in general.

    Raises:
        InputError: if there is no answer at all, or the lines are not of one audit.
    """
    strata = count_answers(answers)
    if all(one.blank == one.drawn for one in strata):
        raise InputError(
            f"{answers.path}: expected answers in the column 'answer', got none on {len(answers.judged):,} pairs; "
            "write yes, no or unsure"
        )
    dropped = [one for one in strata if one.name.side == DROPPED]
    finders = {one.name.finder: [] for one in dropped}  # type: dict[str, list[Counted]]
    for one in dropped:
        finders[one.name.finder].append(one)
    near = [one for one in strata if one.name.side == NEAR]
    by_finder = {name: _share(parts) for name, parts in finders.items()}
    return Precision(_share(dropped) if dropped else None, by_finder, _share(near) if near else None, strata)


def _share(strata: Sequence[Counted]) -> Share:
    readings = [stratified_interval([one.sample(unsure=how) for one in strata], LEVEL) for how in (DIFFERENT, SAME)]
    return Share(sum(one.size for one in strata), *readings)
