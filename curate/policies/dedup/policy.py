"""Deduplication of a table: find copies, decide which image is kept, write the outputs, and measure the quality."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import KEY
from curate.counted import counted
from curate.engines.table import searching
from curate.manifest.store_path import AnyPath
from curate.options.function import callable_of
from curate.options.values import part_of, several
from curate.policies.contract import apply
from curate.policies.decided import DROP, FIRST_DROPPED, N_EXAMPLES, Decided, Result
from curate.policies.dedup.decide import Duplicates, decide_duplicates
from curate.policies.dedup.finders.searches import Search
from curate.policies.dedup.grouping.keep import equal_elsewhere, parse_keep
from curate.policies.dedup.grouping.loss import HEIGHT, WIDTH, ranks
from curate.policies.dedup.grouping.members import MEANINGS as GROUP_MEANINGS
from curate.policies.dedup.grouping.members import Members, count_lower, group_rows
from curate.policies.dedup.listed import cost_notes, note_on_other, with_listed
from curate.policies.dedup.options import DedupOptions
from curate.policies.dedup.quality.audit import audit_text
from curate.policies.dedup.quality.examine import AUDIT, AUDIT_FILES, RecallReport, audit_pairs, planted_recall
from curate.policies.dedup.request import DedupRequest, resolved
from curate.policies.dedup.words import LEAKS, MEANINGS, SCHEMA, DecisionWords, leaks_csv, rule_text
from curate.policies.outputs import Files, Outputs
from curate.policies.reviewed import OPTION, RULE, VerdictLines, label_changes
from curate.policies.sampled import refuse_judged
from curate.tables.images import require_images
from curate.tables.keys import keys_at
from curate.tables.table import Table, open_table
from curate.tables.typed_json import read_value
from scoring.arrays import Ints
from scoring.errors import InputError
from scoring.settings import require_seed

N_CONFLICTS = 5
N_LEAKS = 20
LEAK = "leak"
MOST_PAIRS = 1000  # to judge
MOST_PLANTED = 100_000  # images that are edited


@dataclass(frozen=True)
class DedupResult(Result):
    """The result of a deduplication, as ``curate dedup`` prints it.

    Attributes:
        n_groups: number of groups of at least two rows, including rows of the other table.
        largest: rows of the largest group.
        n_leaks: number of rows that are also in the other table.
        n_conflicts: number of groups with different labels.
        n_lower: number of groups whose kept row has lower quality than a dropped one; None if unknown.
        to_review: number of rows of large groups just above the threshold, kept until reviewed.
        conflicts: some of them: kept key, and the labels.
        recall: texts on the recall of each finder.
        planted: recall on planted copies, if requested.
        groups: path of the table of groups; None in a dry run.
        leaks: path of the leaks by name, if there is another table.
        audit: sampled pairs for reviewers, if requested.
    """

    n_groups: int = 0
    largest: int = 0
    n_leaks: int = 0
    n_conflicts: int = 0
    n_lower: int | None = None
    to_review: int = 0
    conflicts: list[dict[str, Any]] = field(default_factory=list)
    recall: list[str] = field(default_factory=list)
    planted: RecallReport | None = None
    groups: AnyPath | None = None
    leaks: AnyPath | None = None
    audit: AnyPath | None = None

    FILES: ClassVar[tuple[str, ...]] = ("subset", "decisions", "groups", "receipt", "leaks", "audit")

    def account(self, undecided: Callable[[str], str] = str) -> list[tuple[str, int, str]]:
        """Return the outcomes of all rows, with the number of kept rows that need a review."""
        read, kept, *others = super().account(undecided)
        return [read, kept, *([("to review", self.to_review, "of the kept ones")] if self.to_review else []), *others]

    def facts(self) -> dict[str, Any]:
        """Return the receipt's facts and the counts, as plain JSON."""
        names = ("dropped_by", "failed_by", "n_groups", "n_lower", "to_review", "recall")
        planted = {"planted": self.planted.to_json()} if self.planted is not None else {}
        return {**{name: getattr(self, name) for name in names}, **planted}

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {**super().to_json(), "planted": self.planted.to_json() if self.planted else None}


NO_OPTIONS = DedupOptions("")  # of a receipt


@dataclass(frozen=True)
class Dedup:
    """A deduplication of a table; a ``Policy``.

    Attributes:
        request: the parameters.
        against: table whose rows take precedence; or None.
        options: those that the receipt does not record: samples to draw, and what to call with the progress.
        unsearched: notes on what is not searched, as the table lacks columns of default finders or is large.
        verdicts: the reviewers' decisions; or None.

    Raises:
        InputError: for conflicting parameters, or values out of range.
    """

    request: DedupRequest
    against: Table | None = None
    options: DedupOptions = NO_OPTIONS
    unsearched: Sequence[str] = ()
    verdicts: VerdictLines | None = None

    def __post_init__(self) -> None:
        if self.request.report_only and self.against is None:
            raise InputError("--report-only reports what another table also has; pass that as --against")
        if self.request.only_against:
            self._refuse_inside()
        audit, plant = self.options.audit, self.options.estimate_recall
        if audit is not None and not 1 <= audit <= MOST_PAIRS:
            raise InputError(f"--audit draws 1 to {MOST_PAIRS:,} pairs, got {audit:,}; 200 is usual")
        if plant is not None and not 1 <= plant <= MOST_PLANTED:
            raise InputError(f"recall is estimated on 1 to {MOST_PLANTED:,} images, got {plant:,}; 200 is usual")
        if audit or plant:
            require_seed(self.options.seed)

    def _refuse_inside(self) -> None:
        """Raise InputError for options on pairs within the table, if these are not searched."""
        if self.against is None:
            raise InputError("--only-against searches for what another table also has; pass that as --against")
        if self.options.audit is not None:
            raise InputError("--audit is for pairs inside a table, and --only-against finds none; leave one out")

    @property
    def files(self) -> Files:
        """The other table, the groups, the leaks and the sampled pairs."""
        return Files(
            tables=() if self.against is None else (self.against,),
            quoted=() if self.verdicts is None else ((OPTION, self.verdicts.file),),
            more=("groups",),
            texts={
                **({} if self.against is None else {LEAKS: "leaks.csv"}),
                **(AUDIT_FILES if self.options.audit is not None else {}),
            },
        )

    @classmethod
    def from_receipt(cls, rules: Sequence[Mapping[str, Any]]) -> Self:
        """Return the deduplication in a receipt; InputError for another policy."""
        request = DedupRequest.from_json(rules[0])
        against = read_value(rules[0].get("against"), str | None, what="against of the rule of the receipt")
        other = open_table(against, require=[KEY]) if against is not None else None
        return cls(request, other, verdicts=VerdictLines.in_rule(rules[0]))

    def decide(self, table: Table) -> Decided[DedupResult]:
        """Decide every row of a table; InputError for an unusable column or key."""
        request = self.request
        criteria = parse_keep(request.keep, table, label=request.label)
        duplicates = decide_duplicates(
            table, request, criteria, self.against, self.verdicts, compared=self.options.compared
        )
        members = group_rows(duplicates.stars, duplicates.outside, duplicates.order, duplicates.rows)
        words = self._words(table, duplicates, members)
        texts = duplicates.rows.texts.get(request.label or "")
        labels = None if texts is None else pc.if_else(pa.array(duplicates.to_review & ~duplicates.listed), None, texts)
        tells = {WIDTH, HEIGHT} <= set(request.facts)
        groups = members.table(
            table,
            request.bounds,
            duplicates.searches,
            words.kept_key,
            labels,
            np.where(duplicates.to_review, -1, ranks(duplicates.rows, duplicates.large)) if tells else None,
        )
        return Decided(
            table=table,
            policy=[self._rule(duplicates)],
            outcome=duplicates.outcome,
            hashes=duplicates.rows.hashes,
            digest=duplicates.rows.digest,
            words=words.rows,
            schema=SCHEMA,
            meanings=MEANINGS,
            result=self._result(table, duplicates, members, groups),
            examples=self._examples(duplicates),
            more={"groups": groups},
            more_meanings={"groups": GROUP_MEANINGS},
            texts=partial(self._texts, table, duplicates),
            **label_changes(duplicates.reviewed, table, duplicates.outcome, duplicates.rows.hashes),
        )

    def _examples(self, duplicates: Duplicates) -> dict[str, Ints]:
        """Return rows to show as examples: leaks if requested, and dropped rows."""
        leaks_only = self.request.report_only or self.request.only_against
        leaks = np.flatnonzero(duplicates.leaks)[: N_LEAKS * leaks_only]
        gone = np.flatnonzero(duplicates.outcome == DROP)[:N_EXAMPLES]
        return {LEAK: leaks, FIRST_DROPPED: gone} if len(leaks) else {}

    def _rule(self, duplicates: Duplicates) -> dict[str, Any]:
        rule = self.request.to_json()
        if self.against is not None and duplicates.other_rows is not None:
            rule["against"] = {"path": str(self.against.path.resolve()), "digest": duplicates.other_rows.digest}
        return rule if self.verdicts is None else rule | self.verdicts.for_rule()

    def _words(self, table: Table, duplicates: Duplicates, members: Members) -> DecisionWords:
        """Return the columns of decisions, with the key of the kept row of each."""
        linked = duplicates.stars.finder >= 0
        kept_key = keys_at(table, np.where(linked & ~duplicates.outside, duplicates.stars.owner, -1))
        if self.against is not None:
            others = keys_at(self.against, np.where(duplicates.outside, duplicates.stars.owner, -1))
            kept_key = np.where(duplicates.outside, others, kept_key)
        other = Path(str(self.against.path)).name if self.against else ""
        return DecisionWords(duplicates, self.request, members.group, pa.array(kept_key, pa.string()), other)

    def _texts(self, table: Table, duplicates: Duplicates, paths: Mapping[str, Path]) -> dict[str, bytes]:
        """Return the files of leaks and sampled pairs."""
        texts = {}
        if self.against is not None:
            texts[LEAKS] = leaks_csv(table, self.against, duplicates, self.request)
        if (n := self.options.audit) is not None:
            pairs = audit_pairs(table, self.request, duplicates=duplicates, n=n, seed=self.options.seed)
            texts[AUDIT] = audit_text(pairs)
        return texts

    def _result(self, table: Table, duplicates: Duplicates, members: Members, groups: pa.Table) -> DedupResult:
        dropped = duplicates.stars.finder[duplicates.outcome == DROP]
        typed = [rule_text(name, self.request.thresholds[name]) for name in duplicates.searches]
        counts = {rule: int((dropped == number).sum()) for number, rule in enumerate(typed)}
        if self.verdicts is not None:
            counts[RULE] = int((dropped < 0).sum())
        conflicts = groups.filter(groups.column("conflict"))
        planted = None
        if self.options.estimate_recall is not None:
            planted = planted_recall(
                table,
                self.request,
                duplicates=duplicates,
                group=members.group,
                n=self.options.estimate_recall,
                seed=self.options.seed,
                model=self.options.model,
                report=self.options.report,
            )
        return DedupResult(
            dropped_by=counts,
            n_groups=groups.num_rows,
            largest=int(members.size.max(initial=0)),
            n_leaks=int(duplicates.leaks.sum()),
            n_conflicts=conflicts.num_rows,
            n_lower=count_lower(groups),
            to_review=int(duplicates.to_review.sum()),
            conflicts=conflicts.select(["kept_key", "labels", "size"]).slice(0, N_CONFLICTS).to_pylist(),
            recall=recall_lines(duplicates.searches),
            notes=[
                *self.unsearched,
                *duplicates.notes,
                *_loose_notes(duplicates, members),
                *([] if self.request.prefer else equal_elsewhere(table, duplicates.stars, duplicates.outside)),
            ],
            planted=planted,
        )


def recall_lines(searches: Mapping[str, Search]) -> list[str]:
    """Return texts on the share of pairs that each finder compares."""
    lines = []
    for name, search in searches.items():
        recall = search.recall
        if recall is None or recall.exact:
            lines.append(f"{name}: {search.extent}")
        elif not recall.n_pairs:
            lines.append(f"{name}: searched in clusters; recall is unknown, as the sampled rows have no pair")
        else:
            lines.append(
                f"{name}: searched in clusters, which find {recall.estimate:.2%} of the pairs "
                f"[{recall.low:.2%}, {recall.high:.2%}] (by brute force on sampled rows: {recall.n_pairs:,} pairs)"
            )
    return lines


def _loose_notes(duplicates: Duplicates, members: Members) -> list[str]:
    """Return notes on large groups just above the threshold; empty for none."""
    stars, others = duplicates.stars, duplicates.unconfirmed | duplicates.listed
    rows = np.flatnonzero((duplicates.loose | duplicates.to_review) & ~others)
    if not len(rows):
        return []
    groups, commonest = np.unique(members.group[rows]), int(np.bincount(stars.finder[rows]).argmax())
    similarity = float(np.median(stars.similarity[rows[stars.finder[rows] == commonest]]))
    count = counted(len(groups), "large group lies", "large groups lie")
    largest = f"{len(rows):,} rows, {int(members.size[groups].max()):,} in the largest"
    where = f"{largest}; median {stars.names[commonest]} {similarity:.3g}"
    like = "as do images of one template with different content, such as displays, plates or forms"
    n_dropped = len(rows) - int(duplicates.to_review[rows].sum())
    advice = f"{n_dropped:,} are dropped: view them with --sheet, or raise the --threshold"
    if not n_dropped:
        advice = (
            "all are kept until reviewed, by curate review TABLE SUBSET and then --verdicts; --finder "
            "with your own --threshold drops them"
        )
    join = "; " if n_dropped else ": "
    return [f"{count} just above the threshold ({where}), {like}{join}{advice}"]


def run_dedup(options: DedupOptions) -> DedupResult:
    """Keep one row of each group of copies; write subset, decisions, groups and receipt.

    Returns:
        counts, notes and paths.

    Raises:
        InputError: for an unusable table, option or output; nothing is written.
    """
    opened = open_table(options.table, require=[KEY], embedding=options.embedding)
    if options.embedding is not None and options.estimate_recall is not None:
        raise InputError(
            "--estimate-recall embeds edited images, and which model computed the column "
            f"{options.embedding!r} of --embedding is unknown; leave one of them out"
        )
    other = _other_table(options.against, opened, options.embedding) if options.against is not None else None
    request = part_of(DedupRequest, options, prefer=several(options.prefer))
    request, few_finders = resolved(request, opened, options.finder)
    unsearched = [few_finders] if few_finders else []
    if options.finder is None and not few_finders:
        request, unsearched = with_listed(request, opened)
    unsearched += note_on_other(request, other)
    verdicts = None if options.verdicts is None else VerdictLines.of(options.verdicts, opened)
    policy = Dedup(request, other, options, unsearched, verdicts)
    _refuse_unreadable(policy, opened)
    for note in cost_notes(request, opened.n_rows):
        options.announce(note)
    with searching(options.engine, None if options.dry_run else options.out, options.announce):
        return apply(policy, opened, options.out, dry_run=options.dry_run, overwrite=options.overwrite)


dedup = callable_of(DedupOptions, run_dedup)


def _other_table(path: str | Path, table: Table, embedding: str | None) -> Table:
    """Return the table to compare with; InputError if it is the same table."""
    other = open_table(path, require=[KEY], embedding=embedding)
    if other.path.resolve() == table.path.resolve():
        raise InputError(f"--against is {table.path} itself, which has every row already; pass another table")
    return other


def _refuse_unreadable(policy: Dedup, table: Table) -> None:
    """Raise InputError, before the work, if images are unreadable, or verdicts would be overwritten."""
    options = policy.options
    if options.estimate_recall is not None:
        require_images(table, options.source)
    if options.audit is not None and options.dry_run:
        raise InputError("--audit writes pairs to judge, and --dry-run writes nothing; leave one of them out")
    if options.audit is not None and options.out is not None:
        refuse_judged([Outputs(options.out, policy.files).paths[AUDIT]], "--audit")
