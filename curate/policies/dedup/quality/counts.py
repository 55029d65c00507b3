"""Answers of an audit, counted by stratum; every pair that was drawn is in one of the counts."""

from collections import Counter
from dataclasses import dataclass

from curate.policies.dedup.quality.answers import DIFFERENT, SAME, UNSURE, Answers, Judged
from curate.policies.dedup.quality.audit import StratumName
from scoring.errors import InputError
from scoring.metrics.proportions import Stratum


@dataclass(frozen=True)
class Counted:
    """A stratum and the verdicts on the pairs drawn from it.

    Attributes:
        name: of the stratum.
        size: pairs in it.
        drawn: of them.
        same: answers; the same the next two.
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
    for answer in answers.judged:
        strata.setdefault(answer.pair.stratum, []).append(answer)
    out = []
    for name, members in sorted(strata.items(), key=lambda item: (item[0].finder, item[0].side, item[0].number)):
        weights = {member.pair.weight for member in members}
        size = round(members[0].pair.weight * len(members))
        if max(weights) - min(weights) > 1e-6 * max(weights) or abs(size - max(weights) * len(members)) > 1e-3:
            raise InputError(
                f"{answers.path}: expected {len(members)} equal weights in the stratum {str(name)!r} that make a whole "
                f"number of pairs, got {', '.join(f'{w:g}' for w in sorted(weights)[:3])}; draw the audit again"
            )
        said = Counter(member.answer for member in members)
        out.append(Counted(name, size, len(members), said[SAME], said[DIFFERENT], said[UNSURE]))
    return out
