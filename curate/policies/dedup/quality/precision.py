"""Precision of a deduplication from verdicts, and the threshold for a target precision."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import ceil, floor, isnan
from typing import Any

from curate.policies.dedup.quality.answers import DIFFERENT, SAME, UNSURE, Answers, Judged
from curate.policies.dedup.quality.audit import DROPPED, NEAR, StratumName
from curate.policies.sampled import Share, refuse_unfinished
from scoring.errors import InputError
from scoring.metrics.proportions import Stratum, lower_bound, stratified_interval, stratified_share

LEVEL = 0.95
PAIRS = "pairs"
_MOST_DECIMALS = 9
_MOST_TIMES = 1 << 20  # largest multiple of the verdicts that is tried


@dataclass(frozen=True)
class Counted:
    """A stratum and the verdicts on its sampled pairs.

    Attributes:
        name: of the stratum.
        size: number of pairs.
        drawn: number of sampled pairs.
        same: number of verdicts ``same``.
        different: number of verdicts ``different``.
        unsure: number of verdicts ``unsure``.
    """

    name: StratumName
    size: int
    drawn: int
    same: int
    different: int
    unsure: int

    @property
    def blank(self) -> int:
        """Number of sampled pairs without a verdict."""
        return self.drawn - self.same - self.different - self.unsure

    def sample(self, *, unsure: str) -> Stratum:
        """Return the sample, with unsure verdicts counted as ``same`` or ``different``."""
        yes = self.same + (self.unsure if unsure == SAME else 0)
        return Stratum(self.size, self.same + self.different + self.unsure, yes)


def count_answers(answers: Answers) -> list[Counted]:
    """Return the strata of an audit: by finder, dropped pairs first, from the threshold outward.

    Raises InputError for inconsistent weights in a stratum: a line was changed, or belongs to another audit.
    """
    strata: dict[StratumName, list[Judged]] = {}
    for answer in answers.judged:
        strata.setdefault(answer.pair.stratum, []).append(answer)
    out = []
    for name, members in sorted(strata.items(), key=lambda item: (item[0].finder, item[0].side, item[0].number)):
        weights = {member.pair.weight for member in members}
        size = round(members[0].pair.weight * len(members))
        if max(weights) - min(weights) > 1e-6 * max(weights) or abs(size - max(weights) * len(members)) > 1e-3:
            raise InputError(
                f"{answers.path}: expected {len(members)} equal weights in the stratum {str(name)!r} whose "
                f"sum is a whole number of pairs, got {', '.join(f'{w:g}' for w in sorted(weights)[:3])}; "
                "draw the audit again"
            )
        n_answers = Counter(member.answer for member in members)
        out.append(Counted(name, size, len(members), n_answers[SAME], n_answers[DIFFERENT], n_answers[UNSURE]))
    return out


@dataclass(frozen=True)
class Precision:
    """The precision of a run, by an audit.

    Attributes:
        dropped: share of copies among the dropped pairs: the precision; None if none was sampled.
        by_finder: the same for each finder's pairs.
        near: share of copies among the pairs just short of the threshold, which are missed; None if none was sampled.
        strata: all strata with their verdicts.
    """

    dropped: Share | None
    by_finder: dict[str, Share]
    near: Share | None
    strata: list[Counted]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "dropped": self.dropped and self.dropped.to_json(PAIRS),
            "by_finder": {name: share.to_json(PAIRS) for name, share in self.by_finder.items()},
            "near": self.near and self.near.to_json(PAIRS),
            "strata": [{**asdict(each), "name": str(each.name), "blank": each.blank} for each in self.strata],
        }


def precision(answers: Answers) -> Precision:
    """Return the precision of a run, with each sampled pair weighted by the number of pairs that it represents.

    The intervals come from tests that are valid for every population (see ``p_value_at_most``), not from a normal
    approximation, which is too narrow if all verdicts agree. They are for the pairs of this run only.

    Raises:
        InputError: if there is no usable verdict, or lines belong to different audits.
    """
    strata = count_answers(answers)
    if all(stratum.blank == stratum.drawn for stratum in strata):
        refuse_unfinished(answers.path, len(answers.judged), answers.unfinished, "pairs")
    dropped = [stratum for stratum in strata if stratum.name.side == DROPPED]
    finders = {stratum.name.finder: [] for stratum in dropped}  # type: dict[str, list[Counted]]
    for stratum in dropped:
        finders[stratum.name.finder].append(stratum)
    near = [stratum for stratum in strata if stratum.name.side == NEAR]
    by_finder = {name: _share(parts) for name, parts in finders.items()}
    return Precision(_share(dropped) if dropped else None, by_finder, _share(near) if near else None, strata)


def _share(strata: Sequence[Counted]) -> Share:
    """Return the share of pairs that are the same; an unsure one is strictly another."""
    readings = [stratified_interval([each.sample(unsure=how) for each in strata], LEVEL) for how in (DIFFERENT, SAME)]
    return Share(sum(each.size for each in strata), *readings)


@dataclass(frozen=True)
class Tested:
    """A tested threshold, and the lower bound of its precision."""

    threshold: float
    pairs: int
    low: float
    passed: bool


@dataclass(frozen=True)
class Suggestion:
    """The loosest threshold of a finder with a target precision.

    Attributes:
        finder: name of the finder.
        target_precision: in (0, 1).
        confidence: that the threshold has the precision.
        threshold: the loosest one shown to have it; None for none.
        tested: tested thresholds from strict to loose, up to the first that failed.
        more: number of additional similar verdicts needed; None if a threshold was found, or no number suffices.
        share: estimated precision at the first failed threshold, or the run's if none was tested; NaN if unknown.
    """

    finder: str
    target_precision: float
    confidence: float
    threshold: float | None
    tested: list[Tested]
    more: int | None
    share: float

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"share": None if isnan(self.share) else self.share}


def suggest_threshold(answers: Answers, target_precision: float, confidence: float = 0.95) -> list[Suggestion]:
    """Return for each finder the loosest threshold whose precision is shown to reach a target.

    Thresholds at the edges of strata are tested from strict to loose, each at the full confidence, up to the first
    failure. Since the sequence is fixed in advance, the probability of choosing a threshold below the target precision
    is at most 1 - confidence, for each finder. The sequence starts at the first threshold that can pass with this
    number of verdicts. Unsure pairs count as different. The precision is for pairs: a looser threshold also changes
    groups.

    Args:
        answers: of an audit.
        target_precision: in (0, 1).
        confidence: in (0, 1).

    Raises:
        InputError: if ``target_precision`` or ``confidence`` is out of range.

    Source: fixed-sequence testing as in Angelopoulos et al. 2021, "Learn then Test", arXiv:2110.01052, section 2.3.
    """
    for name, value in (("precision", target_precision), ("confidence", confidence)):
        if not 0 < value < 1:
            raise InputError(f"expected a {name} between 0 and 1, got {value:g}; 0.95 is usual")
    finders: dict[str, list[Counted]] = {}
    for stratum in count_answers(answers):
        finders.setdefault(stratum.name.finder, []).append(stratum)
    return [_suggest(name, strata, target_precision, confidence) for name, strata in finders.items()]


def _suggest(finder: str, strata: Sequence[Counted], target_precision: float, confidence: float) -> Suggestion:
    order = {DROPPED: -1, NEAR: 1}
    strict_first = sorted(strata, key=lambda each: (order[each.name.side], order[each.name.side] * each.name.number))
    samples = [stratum.sample(unsure=DIFFERENT) for stratum in strict_first]

    def passes(parts: Sequence[Stratum]) -> bool:
        return lower_bound(parts, confidence) >= target_precision

    tested: list[Tested] = []
    at = max(0, sum(each.name.side == DROPPED for each in strict_first) - 1)  # the run's threshold if none is tested
    for number in range(len(samples)):
        best = [Stratum(sample.size, sample.n, sample.n) for sample in samples[: number + 1]]
        if not tested and not passes(best):
            continue
        at = number
        low = lower_bound(samples[: number + 1], confidence)
        threshold = _edge(strict_first, number)
        tested.append(Tested(threshold, sum(sample.size for sample in best), low, low >= target_precision))
        if not tested[-1].passed:
            break
    chosen = next((test.threshold for test in reversed(tested) if test.passed), None)
    share = stratified_share(samples[: at + 1])
    more = _more_answers(samples[: at + 1], share, target_precision, passes) if chosen is None else None
    return Suggestion(finder, target_precision, confidence, chosen, tested, more, share)


def _edge(strict_first: Sequence[Counted], number: int) -> float:
    """Return the shortest number between a stratum and the next; a pair at it belongs to the stricter one."""
    least = strict_first[number].name.least
    if number + 1 == len(strict_first):
        return least
    beyond = strict_first[number + 1].name.most
    away: Callable[[float], int] = floor if beyond < least else ceil
    for decimals in range(_MOST_DECIMALS):
        scale = 10.0**decimals
        value = away(least * scale) / scale
        if beyond < value <= least or least <= value < beyond:
            return value
    return least


def _more_answers(
    samples: Sequence[Stratum], share: float, target_precision: float, passes: Callable[[Sequence[Stratum]], bool]
) -> int | None:
    """Return the number of additional verdicts like these that would suffice; None if no number does."""
    answered = sum(sample.n for sample in samples)
    if not isnan(share) and share <= target_precision:
        return None

    def grown(times: float) -> list[Stratum]:
        out = []
        for sample in samples:
            n = min(sample.size, ceil(max(sample.n, 1) * times))
            out.append(Stratum(sample.size, n, round(n * sample.positive / sample.n) if sample.n else n))
        return out

    times = 1.0
    while not passes(grown(times)):
        if all(sample.n == sample.size for sample in grown(times)) or times > _MOST_TIMES:
            return None
        times *= 2
    low, high = times / 2, times
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if passes(grown(middle)) else (middle, high)
    return max(1, sum(sample.n for sample in grown(high)) - answered)
