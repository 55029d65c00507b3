"""The rule with a guarantee: keep as many rows as a judged random sample allows for a bound on the bad rate."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from curate.counted import counted
from curate.policies.audit.draw import Population, in_doubt
from curate.policies.audit.results import ANY, AVERAGE, CONFIDENCE, JUDGES, PROMISES, Goal, Promise, parse_goal
from curate.policies.audit.verdicts import Zone, read_audit
from curate.policies.filter.rule import RuleArguments, RuleResult, Ruling, ScoreRule
from curate.statistics.guarantee import N_CUTS, Sampled, conformal_cut, guaranteed_cut, more_verdicts
from curate.tables.digests import text_hashes
from curate.tables.keys import places
from curate.tables.rows import Rows
from scoring.arrays import Array, Ints, Mask
from scoring.errors import InputError
from scoring.lookup import lookup

AUDIT = "audit"
CLOSE = 1e-6  # tolerance of scores edited by a spreadsheet


@dataclass(frozen=True)
class Sample:
    """A judged row: its key, its score when drawn, and its badness, in [0, 1]."""

    key: str
    value: float
    badness: float


@dataclass(frozen=True)
class MaxBadRate(ScoreRule):
    """Keep as many rows as possible with at most a given share of bad ones, from verdicts on a random sample."""

    rate: str | int | float
    column: str
    confidence: str | float
    promise: str
    judges: str
    files: tuple[str, ...]
    zones: tuple[Zone, ...]
    sample: tuple[Sample, ...]
    blank: int
    per: str | None = field(default=None, init=False)
    name: ClassVar[str] = "max-bad-rate"
    ranks = True
    once = True
    stage = 4
    last = "guarantees a bound on the final subset"

    @classmethod
    def read(cls, value: Any, arguments: RuleArguments) -> Self:
        """Return the rule from its typed value; InputError for an invalid value, or another column."""
        audits, column = list(arguments.settings.get(AUDIT, ())), arguments.column
        confidence, promise, judges = (
            arguments.settings.get(name, [default])[-1]
            for name, default in (("confidence", "95%"), ("promise", CONFIDENCE), ("judges", ANY))
        )
        parse_goal(value, confidence)
        if not audits:
            raise InputError(
                f"--{cls.name} uses the verdicts on a sample; draw one with curate review plan, and pass it "
                f"as --{AUDIT}"
            )
        audit = read_audit(audits, judges=judges)
        if column is not None and column != audit.column:
            raise InputError(f"--audit judges the column {audit.column}, and --column is {column}; leave --column out")
        sample = tuple(Sample(row.key, row.value, row.badness) for row in audit.judged)
        return cls(value, audit.column, confidence, promise, judges, audit.files, audit.zones, sample, audit.blank)

    def __post_init__(self) -> None:
        parse_goal(self.rate, self.confidence)
        lookup(PROMISES, self.promise, kind="promise")
        lookup(JUDGES, self.judges, kind="way of joining judges")

    @cached_property
    def goal(self) -> Goal:
        """The rate and confidence as numbers."""
        return parse_goal(self.rate, self.confidence)

    def counted(self, table_rows: Rows, inside: Mask, dropped_by_name: Mask) -> Mask:
        """Return the rows inside, with those judged bad and dropped by key: without them the sample is biased."""
        at = self._rows(table_rows)[[sample.badness > 0 for sample in self.sample]]
        inside = inside.copy()
        inside[at[dropped_by_name[at]]] = True
        return inside

    def judge(self, table_rows: Rows, rows: slice, inside: Mask) -> Ruling:
        """Decide M consecutive rows; ``inside``, shape (M,), masks the rows that no earlier rule dropped."""
        numbers = table_rows.exact[self.column]
        promise = self.promised(table_rows, inside)
        doubt = in_doubt(numbers.values[rows], self.column)
        bar = in_doubt(np.array([promise.cut], doubt.dtype), self.column)
        return Ruling((doubt <= bar) & numbers.valid[rows], numbers.valid[rows], np.array([promise.cut]), promise)

    def typed(self) -> str:
        """Return the rule as typed."""
        return f"--{self.name} {self.rate}"

    def named_files(self) -> list[tuple[str, str]]:
        """Return the files it was read from, with their options."""
        return [(f"--{AUDIT}", file) for file in self.files]

    def endings(self, result: RuleResult) -> list[list[str]]:
        """Return the texts after the score: for kept, dropped, and dropped again, as there are no ties."""
        cut = f"the cut {result.details.cut:.6g} that verdicts allow"
        inside, outside = ("at least", "below") if self.keeps_high else ("at most", "above")
        kept, dropped = [f" is {inside} {cut}"], [f" is {outside} {cut}"]
        return [kept, dropped, dropped]

    def notes(self, result: RuleResult) -> list[str]:
        """Return notes on the guarantee."""
        lost, dropped = result.lost()  # without judged rows dropped by key, which only count for the bound
        promised: Promise = replace(result.details, kept=result.left - lost, of=result.left - lost + dropped)
        several = (
            f"of {len(self.files)} files: if later ones were drawn since earlier ones did not suffice, each try can err"
        )
        more = [several] if len(self.files) > 1 else []
        return [promised.line(self.typed(), self.goal.confidence, self.promise), *more]

    def promised(self, table_rows: Rows, inside: Mask) -> Promise:
        """Return the cut and its guarantee; InputError if verdicts belong to another table, or allow no cut."""
        everything = Population.of(table_rows, self.column)
        self._refuse_another(everything)
        some = Population.of(table_rows, self.column, inside)
        if not len(some):
            raise InputError(f"--{self.name}: no row with a value of {self.column} passes the rules before it")
        at = self._rows(table_rows)
        values = table_rows.exact[self.column].values[at]
        self._refuse_changed(values)
        cuts = np.array([zone.cut for zone in self.zones], everything.ordered.dtype)
        ends = np.unique(some.ranks(cuts))
        ends = ends[ends > 0]
        in_rule = inside[at]
        badness = np.array([sample.badness for sample in self.sample], np.float64)[in_rule]
        if not len(ends) or not in_rule.any():
            raise InputError(f"--{self.name}: no judged row passes the rules before it; audit the rows that pass")
        sampled = Sampled(ends, some.ranks(values[in_rule]), badness)
        kept = self._cut(sampled, some)
        strata = sampled.until(kept)
        judged, bad = (sum(getattr(stratum, name) for stratum in strata) for name in ("n", "positive"))
        return Promise(kept, len(some), judged, bad, self.goal.rate, some.value_at(kept))

    def _cut(self, sampled: Sampled, some: Population) -> int:
        goal, end = self.goal, int(sampled.ends[-1])
        if self.promise == AVERAGE:
            if len(sampled.ends) > 1:
                raise InputError(f"--promise {AVERAGE} takes audits of one zone, got several; use {CONFIDENCE}")
            cuts = np.unique(some.snap(np.unique(np.linspace(1, end, 5 * N_CUTS).astype(np.int64))))
            kept = conformal_cut(sampled, goal.rate, cuts)
            if not kept:
                raise InputError(
                    f"infeasible with these verdicts: {counted(len(sampled.ranks), 'verdict')} cannot show "
                    f"{goal.rate:.3g} on average; judge at least {int(np.ceil(1 / goal.rate)) - 1:,}"
                )
            return kept
        if best := guaranteed_cut(sampled, goal.rate, goal.confidence, snap=some.snap).kept:
            return best
        more = more_verdicts(sampled, goal.rate, goal.confidence)
        seen = f"{counted(len(sampled.ranks), 'verdict')}, {sampled.badness.sum():g} of them bad"
        advice = (
            f"about {more:,} more like these would be needed"
            if more is not None
            else "no number of verdicts like these would suffice; allow a higher rate, or use another --column"
        )
        raise InputError(
            f"infeasible with these verdicts ({seen}): for no cut of {self.column} do they show that at "
            f"most {goal.rate:.3g} is bad, at confidence {goal.confidence:.3g}; {advice}"
        )

    def _rows(self, table_rows: Rows) -> Ints:
        """Return the row of each judged key, shape (n,)."""
        hashes = text_hashes(sample.key for sample in self.sample)
        at = places(hashes, table_rows.hashes)
        if (at < 0).any():
            unknown = self.sample[int((at < 0).argmax())].key
            n = int((at < 0).sum())
            raise InputError(
                f"--audit: {counted(n, 'judged key is', 'judged keys are')} not in the table: "
                f"{unknown[:80]!r}; pass the table that was audited"
            )
        return at

    def _refuse_changed(self, values: Array) -> None:
        then = np.array([sample.value for sample in self.sample])
        differs = ~np.isclose(values.astype(np.float64), then, rtol=CLOSE, atol=0)
        if differs.any():
            at = int(differs.argmax())
            raise InputError(
                f"--audit: {self.column} of {self.sample[at].key[:80]!r} was {then[at]:g} when it was drawn and is "
                f"{values[at]:g} now ({int(differs.sum()):,} of {len(values):,} differ); audit this table again"
            )

    def _refuse_another(self, everything: Population) -> None:
        for zone in self.zones:
            now = int(everything.ranks(np.array([zone.cut], everything.ordered.dtype))[0])
            if now != zone.among:
                raise InputError(
                    f"--audit: {zone.among:,} rows were drawn from, down to {self.column} {zone.cut:g}, and the table "
                    f"has {now:,} such rows; audit this table again"
                )
