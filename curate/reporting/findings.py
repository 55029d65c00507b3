"""Findings to review: kept rows with a problem, by kind, most consequential first."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curate.columns import KEY, SIGNATURE
from curate.counted import counted
from curate.manifest.text import read_text, unguarded
from curate.policies.decided import KEEP
from curate.policies.dedup.decide import decide_duplicates
from curate.policies.dedup.finders.table import FINDERS
from curate.policies.dedup.grouping.keep import parse_keep
from curate.policies.dedup.listed import with_listed
from curate.policies.dedup.request import CROP, DedupRequest, resolved
from curate.policies.dedup.words import LEAKS, REVIEW, how_alike
from curate.policies.issues.kinds import GROUPS
from curate.policies.verdicts import COPY
from curate.policies.verdicts import LABELS as OF_LABEL
from curate.policies.verdicts import LEAKS as OF_LEAK
from curate.reporting.columns import Dataset
from curate.reporting.decided import Applied, Decided
from curate.reporting.galleries import EACH, LABELS, PAIR, Gallery, Group, issues_in
from curate.tables.digests import text_hashes
from curate.tables.keys import named
from curate.tables.table import open_table
from scoring.errors import InputError
from scoring.images.signature import AS_IT_IS

LEAK, CONFLICT, LABEL, JUNK, NEAR = "leak", "label-conflict", "label", "junk", "near-copy"
COPIED = "dropped-copy"  # dropped by a deduplication: needs no decision
QUESTIONS = {LEAK: OF_LEAK, CONFLICT: OF_LABEL, LABEL: OF_LABEL, NEAR: COPY, COPIED: COPY}  # of other kinds: of images
FIRST = (LEAK, CONFLICT, LABEL, JUNK, NEAR, GROUPS)  # first kinds in order; others follow, most rows first
DEDUP = "dedup"
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Finding:
    """One kind of finding on M kept rows.

    Attributes:
        kind: its name.
        words: description.
        rows: indices in the table, worst first, shape (M,).
        value: the sort key, shape (M,); NaN for none.
        texts: description of each row.
        parts: the part of the finding of each row; empty without parts.
        beside: row to compare each row with, shape (M,); -1 for none; empty if no row has one.
        labels: suggested labels; empty for none.
        current: present labels; empty for findings other than labels.
    """

    kind: str
    words: str
    rows: Rows
    value: NDArray[np.float64]
    texts: Sequence[str]
    parts: Sequence[str] = ()
    beside: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    labels: Sequence[str] = ()
    current: Sequence[str] = ()

    def of(self, inside: NDArray[np.bool_]) -> "Finding":
        """Return the finding restricted to rows where ``inside``, shape (M,), is true."""
        return self.at(np.flatnonzero(inside).tolist())

    def at(self, places: Sequence[int]) -> "Finding":
        """Return the finding for its rows at the given positions, in that order."""
        some = {
            name: [values[place] for place in places] if values else ()
            for name, values in vars(self).items()
            if name in ("texts", "parts", "labels", "current")
        }
        at = np.array(places, np.int64)
        beside = self.beside[at] if len(self.beside) else self.beside
        return Finding(self.kind, self.words, self.rows[at], self.value[at], beside=beside, **some)


def findings_of(
    dataset: Dataset, decided: Decided, results: Sequence[Applied], *, near: Iterable[Finding] | None = None
) -> list[Finding]:
    """Return the findings on kept rows, most consequential first.

    The order: leaks distort every measurement, wrong labels are learned, junk, near copies and foreign groups displace
    images; the other kinds describe how an image looks. Empty kinds are omitted.

    Args:
        dataset: the table.
        decided: the decisions on its rows; without any decision all rows count as kept.
        results: policies, in the order applied.
        near: the near copies, if known; None to compute them, which takes as long as a deduplication.

    Raises:
        InputError: for a malformed file of leaks.
    """
    kept = decided.outcome == KEEP if decided.policies else dataset.ok
    near = [*(_near_copies(dataset, results) if near is None else near)]
    findings = [
        *_leaks(dataset, results),
        *_conflicts(dataset, results),
        *_labels(decided),
        *near,
        *_waiting(dataset, decided, near),
        *_issues(dataset, results),
    ]
    findings = [each.of(kept[each.rows]) for each in findings]
    place = {kind: number for number, kind in enumerate(FIRST)}
    findings.sort(key=lambda each: (place.get(each.kind, len(FIRST)), -len(each.rows)))
    return [each for each in findings if len(each.rows)]


def of_findings(findings: Sequence[Finding]) -> Gallery:
    """Return the findings as a gallery: the worst rows of each kind, the first ones of each group unlike the rest."""
    groups, most = [], 2 * EACH
    for each in [section for finding in findings for section in _sections(finding)]:
        shown = f"{'' if each.kind == GROUPS else 'the worst '}{most} of " if len(each.rows) > most else ""
        words = f"{each.kind}: {each.words}: {shown}{counted(len(each.rows), 'row')}"
        groups.append(Group(words, each.rows[:most].tolist()))
    n = len(set().union(*(each.rows.tolist() for each in findings)))
    words = f"the worst of each kind among {counted(n, 'kept row')} with a finding, the largest consequence first"
    return Gallery("review", "To review", words, groups=groups)


def _sections(finding: Finding) -> Iterator[Finding]:
    """Yield each group unlike the rest as a finding, or any other finding as it is."""
    if finding.kind != GROUPS:
        yield finding
        return
    for part in dict.fromkeys(finding.parts):
        yield replace(finding.of(np.array(finding.parts) == part), words=part)


def _leaks(dataset: Dataset, results: Sequence[Applied]) -> Iterator[Finding]:
    """Yield the rows that also occur in another table, from the leaks of deduplications."""
    for result in results:
        entry = result.receipt["outputs"].get(LEAKS)
        path = result.path.with_name(entry["file"]) if entry else None
        if not isinstance(path, Path) or not path.is_file():
            continue
        lines = list(csv.DictReader(io.StringIO(read_text(path, what="the leaks of curate dedup"))))
        try:
            keys = [unguarded(line["key"]) for line in lines]
            value = np.array([float(line["similarity"]) for line in lines])
            texts = [f"the same as {unguarded(line['other_key'])} of the other set: {line['how']}" for line in lines]
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{path} was changed after curate dedup wrote it; restore it from a backup") from None
        finding = Finding(LEAK, "also in the other set", _rows_of(dataset, keys), value, texts)
        yield _in_order(finding, -value)


def _conflicts(dataset: Dataset, results: Sequence[Applied]) -> Iterator[Finding]:
    """Yield the kept rows whose copies have another label."""
    for result in results:
        if result.groups is None or not result.groups.n_rows:
            continue
        read = result.groups.take(
            range(result.groups.n_rows), ["conflict", "other_table", "kept_key", "labels", "size"]
        )
        lines = [line for line in read.to_pylist() if line["conflict"] and not line["other_table"]]
        size = np.array([line["size"] for line in lines], np.float64)
        texts = [f"{line['size']} copies with different labels: {line['labels']}" for line in lines]
        rows = _rows_of(dataset, [line["kept_key"] for line in lines])
        yield _in_order(Finding(CONFLICT, "its copies have other labels", rows, size, texts), -size)


def _labels(decided: Decided) -> Iterator[Finding]:
    """Yield the rows with a suspected label, lowest quality first."""
    for policy in decided.policies:
        table = policy.applied.decisions
        if policy.applied.name != LABELS or table is None:
            continue
        at = np.flatnonzero(policy.margin < 0)
        read = table.take(at, ["reason", "score", *PAIR]).to_pydict()
        value = np.array(read["score"], np.float64)
        pairs = [*zip(map(str, read[PAIR[0]]), map(str, read[PAIR[1]]), strict=True)]
        labels = [new if new != label else "" for label, new in pairs]
        parts = [f"labelled {label}, {f'{new} is more likely' if new != label else 'doubtful'}" for label, new in pairs]
        words, current = "the label is suspected", [label for label, _ in pairs]
        finding = Finding(LABEL, words, policy.row[at], value, read["reason"], parts, labels=labels, current=current)
        yield _in_order(finding, value)


def _near_copies(dataset: Dataset, results: Sequence[Applied]) -> Iterator[Finding]:
    """Yield the pairs kept at a strict threshold that are duplicates at the default one."""
    for result in results:
        if result.name != DEDUP or not isinstance(result.subset, Path) or not result.subset.is_file():
            continue
        strict = DedupRequest.from_json(result.rules[0])
        usual = FINDERS[SIGNATURE].threshold
        if strict.only_against or usual is None or strict.thresholds.get(SIGNATURE, usual) <= usual:
            continue
        subset = open_table(result.subset)
        request, _ = resolved(replace(strict, thresholds={}, report_only=False, facts=()), subset, None)
        request, _ = with_listed(request, subset)
        stars = decide_duplicates(subset, request, parse_keep(request.keep, subset, label=request.label)).stars
        gone = np.flatnonzero(stars.finder >= 0)
        gone = gone[np.argsort(-stars.similarity[gone], kind="stable")]
        keys, owners, value = named(subset, gone), named(subset, stars.owner[gone]), stars.similarity[gone]
        names = [stars.names[finder] for finder in stars.finder[gone].tolist()]
        by = [how_alike(name, alike, 0, [AS_IT_IS]) for name, alike in zip(names, value.tolist(), strict=True)]
        yield paired(dataset, keys, owners, value, by)


def _waiting(dataset: Dataset, decided: Decided, near: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the rows that a deduplication kept for review, next to the similar image, unless in ``near``."""
    listed = np.concatenate([np.zeros(0, np.int64), *(finding.rows for finding in near)])
    for policy in decided.policies:
        table = policy.applied.decisions
        if policy.applied.name != DEDUP or table is None or REVIEW not in policy.rules:
            continue
        at = np.flatnonzero((policy.rule == policy.rules.index(REVIEW)) & ~np.isin(policy.row, listed))
        at = at[np.argsort(-policy.margin[at], kind="stable")]
        lines = table.take(at, [KEY, "score", "threshold", "kept_key"])
        mine = lines.take(np.flatnonzero(_rows_of(dataset, lines.column("kept_key").to_pylist()) >= 0))  # of this table
        keys, owners, value, bounds = (
            mine.column(name).to_pylist() for name in (KEY, "kept_key", "score", "threshold")
        )
        request = DedupRequest.from_json(policy.applied.rules[0])
        finders = {bound: name for name, bound in request.bounds.items() if name in (*request.held_back, CROP)}
        by = [how_alike(finders[bound], alike, 0, [AS_IT_IS]) for bound, alike in zip(bounds, value, strict=True)]
        finding = paired(dataset, keys, owners, np.array(value, np.float64), by)
        yield finding.of(~np.isin(finding.rows, listed))


def paired(
    dataset: Dataset, keys: Sequence[str], owners: Sequence[str], value: NDArray[np.float64], by: Sequence[str]
) -> Finding:
    """Return a finding with both rows of each pair, each row once, most similar pair first.

    Args:
        dataset: the table.
        keys: of the P rows that could be dropped.
        owners: keys of the similar rows.
        value: similarities, in the unit of a finder, shape (P,).
        by: P texts with the finder and the similarity.
    """
    nearest: dict[str, tuple[float, str]] = {}
    for key, owner, alike, how in zip(keys, owners, value.tolist(), by, strict=True):
        nearest.setdefault(owner, (alike, f"like {key}, by {how}"))
        nearest.setdefault(key, (alike, f"like {owner}, by {how}"))
    numbers = np.array([each for each, _ in nearest.values()], np.float64)
    texts = [text for _, text in nearest.values()]
    rows = dict(zip(nearest, _rows_of(dataset, list(nearest)).tolist(), strict=True))
    other = dict(zip(keys, owners, strict=True))
    beside = np.array([rows.get(other.get(key, ""), -1) for key in nearest], np.int64)
    named_rows = np.array([*rows.values()], np.int64)
    finding = Finding(NEAR, "nearly the same as another", named_rows, numbers, texts, beside=beside)
    return _in_order(finding, np.arange(len(nearest), dtype=np.float64))


def _issues(dataset: Dataset, results: Sequence[Applied]) -> Iterator[Finding]:
    """Yield the rows of every kind of issue."""
    for name, kind, values, has, cut in issues_in(dataset, results):
        rows = np.flatnonzero(has)
        value = values[rows].astype(np.float64)
        texts = [f"{kind.name} {each:.4g} is {kind.side} {cut:.4g}" for each in value.tolist()]
        parts: Sequence[str] = ()
        if name == GROUPS:
            parts = texts = [f"in group {each:.0f}" for each in value.tolist()]
        finding = Finding(name, kind.meaning, rows, value, texts, parts)
        yield _in_order(finding, value if kind.low or name == GROUPS else -value)


def _rows_of(dataset: Dataset, keys: Sequence[str]) -> Rows:
    return dataset.find(text_hashes(keys))


def _in_order(finding: Finding, order: NDArray[np.float64]) -> Finding:
    """Return a finding restricted to rows of the table, sorted by ``order``, shape (M,), lowest first."""
    return finding.at([place for place in np.argsort(order, kind="stable").tolist() if finding.rows[place] >= 0])
