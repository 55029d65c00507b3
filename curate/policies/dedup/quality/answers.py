"""Sampled pairs with the reviewers' verdicts."""

import re
from dataclasses import dataclass
from pathlib import Path

from curate.policies.dedup.quality.audit import COLUMNS, DROPPED, NEAR, Drawn, StratumName
from curate.policies.sampled import Judged as Sampled
from curate.policies.sampled import drawn_rows, n_finished, number_in, verdicts_on
from curate.policies.verdicts import DROP, KEEP

MOST_DRAWN = 100_000  # pairs of an audit
SAME, DIFFERENT, UNSURE = "same", "different", "unsure"
OF_VERDICT = {DROP: SAME, KEEP: DIFFERENT}
_STRATUM = re.compile(
    rf"^(?P<finder>.+): (?P<side>{DROPPED}|{NEAR}) (?P<number>\d{{1,3}}), (?P<least>\S+) to (?P<most>\S+)$"
)


@dataclass(frozen=True)
class Judged:
    """A pair and its verdict: ``same``, ``different``, ``unsure``, or None if it counts as not sampled."""

    pair: Drawn
    answer: str | None


@dataclass(frozen=True)
class Answers:
    """An audit with answers.

    Attributes:
        path: of the file.
        judged: all sampled pairs, in order.
        unfinished: pairs whose verdicts are ignored, since their block is not completely judged.
    """

    path: str
    judged: tuple[Judged, ...]
    unfinished: int = 0


def read_answers(path: str | Path) -> Answers:
    """Return the pairs of an audit with the reviewers' verdicts from ``curate review``.

    A pair is ``same`` if a copy was dropped, ``different`` if both were kept, and ``unsure`` if reviewers differ. Pairs
    after the last completely judged block count as not sampled.

    Raises:
        InputError: as ``read_pairs``, or for unreadable verdicts.
    """
    pairs, verdicts = read_pairs(path), verdicts_on(Path(path))
    answers = [_answer(verdicts, pair) for pair in pairs]
    is_judged = [answer is not None for answer in answers]
    n = n_finished([shown(pair)[0] for pair in pairs], is_judged)
    judged = tuple(
        Judged(pair, answer if at < n else None) for at, (pair, answer) in enumerate(zip(pairs, answers, strict=True))
    )
    return Answers(str(path), judged, sum(is_judged[n:]))


def shown(pair: Drawn) -> tuple[str, str]:
    """Return the judged image of a pair, the one to be dropped, and the image to compare it with."""
    return (pair.key_a, pair.key_b) if pair.stratum.side == NEAR else (pair.key_b, pair.key_a)


def read_pairs(path: str | Path) -> list[Drawn]:
    """Return the sampled pairs in order; InputError for an unreadable file, or malformed columns and lines."""
    return drawn_rows(Path(path), COLUMNS, "NAME.audit.csv of curate dedup --audit", _parsed, most=MOST_DRAWN)


def _answer(verdicts: Sampled, pair: Drawn) -> str | None:
    """Return the verdict of reviewers on a pair, in either order."""
    lines = [
        line
        for keys in ((pair.key_a, pair.key_b), (pair.key_b, pair.key_a))
        for line in verdicts.get(keys, {}).values()
    ]
    answers = {OF_VERDICT.get(line.verdict, UNSURE) for line in lines}
    return (answers.pop() if len(answers) == 1 else UNSURE) if answers else None


def _parsed(cells: dict[str, str]) -> Drawn:
    stratum = _STRATUM.match(cells["stratum"].strip())
    if stratum is None:
        raise ValueError(f"expected a stratum as it was drawn, got {cells['stratum'][:60]!r}")
    least, most = (number_in(stratum.groupdict(), bound) for bound in ("least", "most"))
    weight = number_in(cells, "weight")
    if weight < 1:
        raise ValueError(f"expected a weight of 1 or more, got {weight:g}")
    name = StratumName(stratum["finder"], stratum["side"], int(stratum["number"]), least, most)
    return Drawn(cells["key_a"], cells["key_b"], number_in(cells, "similarity"), name, weight)
