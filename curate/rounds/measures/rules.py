"""Stop rules: a bound on the accuracy or the lift, compared with the anytime-valid interval."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from curate.probes.accuracy import Accuracy
from curate.rounds.measures.lift import LEAST_CONTROL, LEAST_HELD_OUT, Anytime, PairLift, anytime_accuracy
from curate.statistics.paired import fewest_rows, level_of_look
from scoring.errors import InputError
from scoring.lookup import closest

ACCURACY, LIFT = "accuracy", "lift"
MEASURES = (ACCURACY, LIFT)
_FORM = re.compile(r"\s*([^\W\d]\w*)\s*([<>=≤≥!]+)\s*([-+]?\d*\.?\d+)\s*(%?)\s*")
_EXAMPLE = "such as 'accuracy >= 90%' or 'lift <= 1%'"
Why = Literal["shown", "not yet", "too few labels", "too few rows"]


@dataclass(frozen=True)
class StopRule:
    """A bound on a measure, after which labelling stops.

    Attributes:
        measure: "accuracy" or "lift".
        at_least: whether the measure must be at least the bound; else at most.
        bound: a share; for a lift in [-1, 1].
    """

    measure: str
    at_least: bool
    bound: float

    def __str__(self) -> str:
        return f"{self.measure} {'>=' if self.at_least else '<='} {100 * self.bound:.10g}%"

    @classmethod
    def parse(cls, text: str) -> "StopRule":
        """Parse a rule as typed.

        Raises:
            InputError: for another form, an unknown measure (with the nearest name), or a trivial bound.

        >>> str(StopRule.parse("accuracy>=0.9"))
        'accuracy >= 90%'
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise InputError(f"--stop takes a measure, >= or <=, and a share, {_EXAMPLE}, got {text[:60]!r}")
        measure, sign, number, percent = match.groups()
        if measure.lower() not in MEASURES:
            raise InputError(
                f"--stop {text[:60]!r}: unknown measure {measure!r}{closest(measure.lower(), MEASURES)} "
                f"(known: {', '.join(MEASURES)})"
            )
        if sign not in (">=", "<=", "≥", "≤"):
            raise InputError(f"--stop {text[:60]!r}: expected >= or <=, got {sign!r}; {_EXAMPLE}")
        bound, least = float(number) / (100 if percent else 1), -1.0 if measure.lower() == LIFT else 0.0
        if not least < bound < 1:
            raise InputError(
                f"--stop {text[:60]!r}: expected a share above {least:.0%} and below 100%, got {number}{percent}; "
                f"{_EXAMPLE}"
            )
        return cls(measure.lower(), sign in (">=", "≥"), bound)


def parse_rules(texts: Iterable[str]) -> tuple[StopRule, ...]:
    """Parse rules as typed, without repeats."""
    return tuple(dict.fromkeys(StopRule.parse(text) for text in texts))


@dataclass(frozen=True)
class RuleCheck:
    """The result of checking a stop rule.

    Attributes:
        rule: as text.
        reached: whether the bound is shown; None if nothing is measured yet.
        why: "shown", "not yet", "too few labels" (nothing is measured yet) or "too few rows" (it cannot be shown with
            these held-out rows).
        measure: "accuracy" or "lift".
        n: number of held-out rows.
        value: of the measure; None if not measured.
        low: lower end of its interval.
        high: upper end.
        needed: held-out rows needed to show it for the same accuracy, or with too few rows, if all are right; None if
            impossible or unknown.
    """

    rule: str
    reached: bool | None
    why: Why
    measure: str
    n: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    needed: int | None = None


def check_rule(
    rule: StopRule, look: int, confidence: float, accuracy: Accuracy | None, lift: PairLift | None
) -> RuleCheck:
    """Check a stop rule with the data at a look.

    Args:
        rule: the rule.
        look: number of imports so far.
        confidence: of the intervals.
        accuracy: of the present model; None without one.
        lift: of the present arms; None with too few labels.
    """
    if rule.measure == LIFT:
        if lift is None:
            return RuleCheck(str(rule), None, "too few labels", LIFT, accuracy.n if accuracy else 0)
        return _checked(rule, lift.anytime, lift.n_held_out, lift.strategy - lift.control)
    if accuracy is None or not accuracy.n or accuracy.accuracy is None:
        return RuleCheck(str(rule), None, "too few labels", ACCURACY, 0)
    interval = anytime_accuracy(accuracy, look, confidence)
    short = needed_at_best(rule, look, confidence)
    if accuracy.n < short:
        checked = _checked(rule, interval, accuracy.n, accuracy.accuracy)
        return replace(checked, reached=False, why="too few rows", needed=short)
    bound, share = _upwards(rule, accuracy.accuracy)
    needed = fewest_rows(bound, level_of_look(look, confidence), share)
    return _checked(rule, interval, accuracy.n, accuracy.accuracy, needed)


def _checked(rule: StopRule, interval: Anytime, n: int, value: float, needed: int | None = None) -> RuleCheck:
    low, high = interval.low, interval.high
    reached = low >= rule.bound if rule.at_least else high <= rule.bound  # the whole interval
    why: Why = "shown" if reached else "not yet"
    return RuleCheck(str(rule), reached, why, rule.measure, n, value, low, high, None if reached else needed)


def needed_at_best(rule: StopRule, look: int, confidence: float) -> int:
    """Return the held-out rows that an accuracy rule needs at a look if all are right (wrong for "at most")."""
    return fewest_rows(_upwards(rule, 1.0)[0], level_of_look(look, confidence)) or 0


def _upwards(rule: StopRule, share: float) -> tuple[float, float]:
    """Return the bound and a share, both negated if the rule is "at most", to compare as "at least"."""
    return (rule.bound, share) if rule.at_least else (1 - rule.bound, 1 - share)


def refuse_unreachable(rules: Iterable[StopRule], n_held_out: int, control: int, confidence: float) -> None:
    """Raise InputError, before rounds begin, for rules that cannot be reached with the held-out rows.

    Args:
        rules: stop rules.
        n_held_out: number of held-out rows.
        control: random rows per batch.
        confidence: of the intervals.
    """
    for rule in rules:
        if not n_held_out:
            raise InputError(
                f"--stop '{rule}' needs images to measure on, and --holdout 0 holds out none; leave it out"
            )
        if rule.measure == LIFT:
            if not control:
                raise InputError(f"--stop '{rule}' needs images drawn at random, and --control 0 draws none; use 0.1")
            if n_held_out < LEAST_HELD_OUT:
                raise InputError(
                    f"--stop '{rule}' needs at least {LEAST_HELD_OUT} held-out images, got {n_held_out}; "
                    f"and {LEAST_CONTROL} labels drawn at random; raise --holdout"
                )
            continue
        needed = needed_at_best(rule, 1, confidence)
        if n_held_out < needed:
            raise InputError(
                f"--stop '{rule}' can never be reached with {n_held_out:,} held-out images, were the model "
                f"{'right' if rule.at_least else 'wrong'} on every one; it needs at least {needed:,}: raise --holdout"
            )
