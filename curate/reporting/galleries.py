"""Galleries for review: by score, decisions, duplicates, labels, issues and failures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import OK
from curate.counted import counted
from curate.policies.contract import FILTER
from curate.policies.decided import DROP, KEEP, UNDECIDED
from curate.policies.issues.kinds import Kind, Values
from curate.policies.issues.policy import Issues, columns_of, values_of, worst_of
from curate.reporting.columns import Dataset, shortened
from curate.reporting.decided import NO_RULE, Applied, Decided, Decisions
from curate.reporting.numbers import ByClass, columns_at_once
from curate.sheets.doubtful import doubtful_groups
from curate.tables.digests import plain, text_hashes
from curate.tables.images import SHA256
from curate.tables.needs import Needs
from curate.tables.rows import Codes, read_rows
from curate.tables.table import Table
from scoring.errors import InputError

FLAT, EACH = 48, 12  # rows of a gallery, and of each group of one
SPARE = 8  # oversampling, since equal images are shown once
MOST_GROUPS = 20
CLASSES = 12
LABELS, ISSUES = "labels", "issues"
PAIR = ("given_label", "suggested_label")
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Row indices that belong together; ``kept`` is the kept one."""

    words: str
    rows: Sequence[int]
    kept: int | None = None


@dataclass(frozen=True)
class Gallery:
    """Rows to show, as a list or in groups.

    Attributes:
        id: in the page.
        title: the heading.
        words: how the rows were chosen.
        rows: row indices of a gallery without groups.
        groups: of a gallery with groups.
        most: maximal number of rows, or of rows per group, with equal images once; None for all.
    """

    id: str
    title: str
    words: str
    rows: Sequence[int] = ()
    groups: Sequence[Group] = field(default_factory=list)
    most: int | None = None

    def all_rows(self) -> list[int]:
        """Return every row once, in display order."""
        return list(dict.fromkeys([*self.rows, *(row for group in self.groups for row in group.rows)]))

    def to_json(self, place: Any) -> dict[str, Any]:
        """Return the facts for the page; ``place`` maps a row number to its identifier on the page."""
        facts: dict[str, Any] = {"id": self.id, "title": self.title, "words": self.words}
        if not self.groups:
            return facts | {"kind": "flat", "items": [place(row) for row in self.rows]}
        groups = [
            {
                "words": shortened(group.words),
                "items": [place(row) for row in group.rows],
                "kept": None if group.kept is None else place(group.kept),
            }
            for group in self.groups
        ]
        return facts | {"kind": "groups", "groups": groups}


def of_score(column: str, certain_first: Rows, classes: ByClass) -> list[Gallery]:
    """Return the most and least certain rows by a score, overall and in the largest classes.

    Args:
        column: name of the score.
        certain_first: the rows with a value, most certain first.
        classes: of the table.
    """
    n = counted(len(certain_first), "row")
    by_class = [
        Group(f"{name}: {side} certain", part.tolist())
        for name, rows in list(classes.of(certain_first))[:CLASSES]
        for side, part in (("most", rows[: EACH // 2 * SPARE]), ("least", rows[::-1][: EACH // 2 * SPARE]))
        if len(part)
    ]
    least, most = (rows[: FLAT * SPARE].tolist() for rows in (certain_first[::-1], certain_first))
    return [
        Gallery("least-certain", "Least certain", f"by {column}, of {n}", least, most=FLAT),
        Gallery("most-certain", "Most certain", f"by {column}, of {n}", most, most=FLAT),
        Gallery(
            "by-class", "Ends of each class", f"by {column}, in the largest classes", groups=by_class, most=EACH // 2
        ),
    ]


def without_copies(table: Table, galleries: Sequence[Gallery]) -> list[Gallery]:
    """Return galleries with bit-identical images once, cut to their maximal number of rows."""
    rows = np.unique([row for each in galleries if each.most is not None for row in each.all_rows()]).astype(np.int64)
    digests = table.take(rows, [SHA256]).column(0).to_pylist() if SHA256 in table.schema.names else rows.tolist()
    digest = {row: row if value is None else value for row, value in zip(rows.tolist(), digests, strict=True)}

    def first(rows: Sequence[int], most: int) -> list[int]:
        images: dict[object, int] = {}
        for row in rows:
            images.setdefault(digest[row], row)
        return list(images.values())[:most]

    return [
        each
        if each.most is None
        else replace(
            each,
            rows=first(each.rows, each.most),
            groups=[replace(group, rows=first(group.rows, each.most)) for group in each.groups],
        )
        for each in galleries
    ]


def of_decisions(dataset: Dataset, decided: Decided) -> list[Gallery]:
    """Return the rows on both sides of every threshold, dropped rows by reason, and undecided rows."""
    cut = [group for policy in decided.policies if policy.applied.name == FILTER for group in _sides(policy)]
    dropped = [
        group for number, policy in enumerate(decided.policies) for group in _dropped(dataset, decided, number, policy)
    ]
    undecided = lowest(dataset, np.flatnonzero(decided.outcome == UNDECIDED), FLAT * SPARE).tolist()
    cut, dropped, drawn = cut[: 2 * MOST_GROUPS], dropped[:MOST_GROUPS], "drawn by the hash of their keys"
    return [
        Gallery("cut", "Both sides of the cut", "the nearest to it on either side", groups=cut, most=2 * EACH),
        Gallery("dropped", "Dropped, by reason", drawn, groups=dropped, most=EACH),
        Gallery("undecided", "Undecided", drawn, undecided, most=FLAT),
    ]


def lowest(dataset: Dataset, rows: Rows, n: int) -> Rows:
    """Return the n given rows with the lowest key hashes, as a random sample."""
    if len(rows) > n:
        rows = rows[np.argpartition(dataset.draw[rows], n)[:n]]
    return rows[np.argsort(dataset.draw[rows], kind="stable")]


def _sides(decisions: Decisions) -> list[Group]:
    groups = []
    for number, rule in enumerate(decisions.rules):
        judged = (decisions.rule == number) & ~np.isnan(decisions.margin)
        dropped = np.flatnonzero(judged & (decisions.outcome == DROP))
        kept = np.flatnonzero(judged & (decisions.outcome == KEEP))
        if not len(dropped) or not len(kept):
            continue
        for side, at in (("just kept", kept), ("just dropped", dropped)):
            nearest = at[np.argsort(np.abs(decisions.margin[at]), kind="stable")[: 2 * EACH * SPARE]]
            groups.append(Group(f"{side} by {rule}: of {counted(len(at), 'row')}", decisions.row[nearest].tolist()))
    return groups


def _dropped(dataset: Dataset, decided: Decided, number: int, decisions: Decisions) -> list[Group]:
    """Return the rows dropped by a policy, by rule, most rows first, without rows that a later policy drops too."""
    gone = (decisions.outcome == DROP) & (decided.by[decisions.row] == number)
    return [
        Group(
            f"{decisions.applied.name}{'' if rule == NO_RULE else f', {rule}'}: {counted(n, 'row')}",
            lowest(dataset, decisions.row[gone & (decisions.rule == code)], EACH * SPARE).tolist(),
        )
        for code, rule, n in Codes(decisions.rule[gone], decisions.rules).largest()
    ]


def of_duplicates(dataset: Dataset, decided: Decided) -> list[Gallery]:
    """Return the most doubtful groups of every deduplication, without rows of another table."""
    groups = []
    for policy in decided.policies:
        if policy.applied.groups is None or policy.applied.decisions is None or not policy.applied.groups.n_rows:
            continue
        for group in doubtful_groups(policy.applied.decisions, policy.applied.groups, limit=MOST_GROUPS):
            keys = text_hashes(member.key for member in group.members)
            places = dataset.find(keys).tolist()
            shown = [(row, member) for row, member in zip(places, group.members, strict=True) if row >= 0]
            kept = next((row for row, member in shown if member.is_kept and not member.is_elsewhere), None)
            conflict = f"; labels differ: {group.labels}" if group.is_conflict else ""
            words = f"group {group.number}: {counted(group.size, 'row')} by {group.finders}{conflict}"
            if shown:
                groups.append(Group(words, [row for row, _ in shown], kept))
    return [Gallery("duplicates", "Duplicate groups", "the most doubtful first", groups=groups[:MOST_GROUPS])]


def of_failures(dataset: Dataset) -> list[Gallery]:
    """Return rows whose image could not be scored, by reason."""
    if not len(dataset.status.codes):
        return []
    groups = [
        Group(
            f"{name}: {counted(n, 'row')}", lowest(dataset, np.flatnonzero(dataset.status.codes == code), EACH).tolist()
        )
        for code, name, n in dataset.status.largest("no status")
        if name != OK
    ]
    return [Gallery("failed", "Failed", "drawn by the hash of their keys", groups=groups[:MOST_GROUPS])]


def of_labels(decided: Decided) -> list[Gallery]:
    """Return the most suspected labels by pair of present and suggested label, worst pair first."""
    parts = [pl.DataFrame(schema={"row": pl.Int64, **dict.fromkeys(PAIR, pl.String)})]
    n_suspected = 0
    for policy in decided.policies:
        table = policy.applied.decisions
        if policy.applied.name != LABELS or table is None or not set(PAIR) <= set(table.schema.names):
            continue
        suspected = np.flatnonzero(policy.margin < 0)
        n_suspected += len(suspected)
        worst = suspected[np.argsort(policy.margin[suspected], kind="stable")[: 2 * FLAT]]
        texts = [plain(column.combine_chunks()).cast(pa.string()) for column in table.take(worst, PAIR).columns]
        parts.append(pl.DataFrame({"row": policy.row[worst], **dict(zip(PAIR, map(pl.Series, texts), strict=True))}))
    by_pair = pl.concat(parts).group_by(*PAIR, maintain_order=True).agg(pl.col("row").head(EACH))
    pairs = [Group(f"given {a}, suggested {b}", rows) for a, b, rows in by_pair.head(MOST_GROUPS).iter_rows()]
    words = f"the worst of {counted(n_suspected, 'suspected label')}, by what was given and what is suggested"
    return [Gallery("labels", "Suspected labels", words, groups=pairs)]


def of_issues(dataset: Dataset, results: Sequence[Applied]) -> list[Gallery]:
    """Return the worst images of every kind of issue, from a policy's results if there are any."""
    groups = []
    for name, kind, values, has, cut in issues_in(dataset, results):
        rows = worst_of(kind, values, has, EACH)
        if len(rows):
            n = counted(int(has.sum()), "row")
            groups.append(Group(f"{name}: {kind.meaning} ({kind.name} {kind.side} {cut:.4g}): {n}", rows.tolist()))
    return [Gallery("issues", "Images with an issue", "the worst of each kind", groups=groups)]


def issues_in(
    dataset: Dataset, results: Sequence[Applied]
) -> Iterator[tuple[str, Kind, Values, NDArray[np.bool_], float]]:
    """Yield every kind of issue with its measure, its rows, and its threshold.

    The settings of an issues policy are used if it is among the results. Nothing is yielded for a table without
    measures.
    """
    table = dataset.table
    receipts = [result for result in results if result.name == ISSUES]
    try:
        policy = Issues.from_receipt(receipts[-1].rules) if receipts else Issues()
        kinds, _ = policy.kinds_in(table)
    except InputError:
        return  # the table has no measures of quality
    for some in _read_together(kinds, table, columns_at_once(dataset)):
        names = columns_of(some, table)
        read = read_rows(table, Needs(exact=names, keys=False))
        columns = {each: values_of(read, each, dataset.ok) for each in names}
        del read
        for name, kind in some.items():
            looked = policy.look({name: kind}, columns, dataset.ok)
            yield name, kind, looked.measures[name], looked.has[name], looked.cuts[name]


def _read_together(kinds: Mapping[str, Kind], table: Table, most: int) -> Iterator[dict[str, Kind]]:
    """Yield the kinds in groups that read at most this many columns together, or single kinds."""
    some: dict[str, Kind] = {}
    for name, kind in kinds.items():
        if some and len(columns_of({**some, name: kind}, table)) > most:
            yield some
            some = {}
        some[name] = kind
    if some:
        yield some
