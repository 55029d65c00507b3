"""The groups of a deduplication to review first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY
from curate.tables.table import Table
from scoring.errors import InputError

GROUP, KEPT_KEY, SCORE, MARGIN = "group", "kept_key", "score", "margin"
CALL = (SCORE, "threshold", MARGIN)
OF_A_ROW = (KEY, "decision", "reason", GROUP, KEPT_KEY, *CALL)
OF_A_GROUP = (GROUP, KEPT_KEY, "other_table", "smallest_similarity", "measure", MARGIN, "finders", "labels", "conflict")
MOST_MEMBERS = 12


@dataclass(frozen=True)
class Member:
    """One row of a group: its similarity to the kept row in units of its finder, and the reason for its decision.

    Attributes:
        key: of the row.
        is_kept: whether it is the kept row.
        is_elsewhere: whether it is a row of the other table, without a decision.
        decision: ``keep`` or ``drop``.
        similarity: to the kept row; None for the kept row, or for a finder of equal rows.
        threshold: threshold of the finder; None as for ``similarity``.
        reason: of the decision.
    """

    key: str
    is_kept: bool
    is_elsewhere: bool
    decision: str
    similarity: float | None
    threshold: float | None
    reason: str


@dataclass(frozen=True)
class Group:
    """Duplicate rows, kept row first, then the most doubtful; at most ``MOST_MEMBERS`` of ``size``.

    Attributes:
        number: of the group, as in the files.
        members: the shown rows.
        size: rows in the group, including the kept row.
        smallest: lowest similarity of its pairs, in the unit of ``measure``; None if it has none.
        measure: the finder of this similarity.
        finders: text on the finders that linked the group.
        labels: text on the labels of its rows.
        is_conflict: whether rows have different labels.
    """

    number: int
    members: list[Member]
    size: int
    smallest: float | None
    measure: str
    finders: str
    labels: str
    is_conflict: bool

    @property
    def n_hidden(self) -> int:
        """Number of rows not shown."""
        return self.size - len(self.members)


def doubt(similarity: NDArray[Any], threshold: NDArray[Any], margin: NDArray[Any]) -> NDArray[np.float64]:
    """Return how far each similarity is above its threshold: 0 at the threshold, 1 for equality, inf without one.

    To compare cosines with Hamming distances, the margin is relative to the distance from the threshold to equality.
    Values below 0 do not reach the threshold; thresholds that only equality meets give 1.

    Args:
        similarity: to the kept row, shape (N,), in the unit of its finder; NaN if absent.
        threshold: of the finder, shape (N,).
        margin: signed distance of the similarity from the threshold, shape (N,).
    """
    is_higher = (similarity - threshold) * margin >= 0
    way = np.where(is_higher, 1 - threshold, threshold)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(way > 0, margin / way, margin)
    sure = (margin == 0) & ((threshold == 1) | (threshold == 0))
    return np.asarray(np.where(sure, 1.0, np.where(np.isnan(share), np.inf, share)), np.float64)


def doubtful_groups(decisions: Table, groups: Table, *, limit: int) -> list[Group]:
    """Return the groups with the smallest margin, most doubtful first; ties go to the lower number.

    Memory grows with the number of groups and the rows of shown groups.

    Args:
        decisions: of a deduplication.
        groups: of the same run; its ``margin`` is as in ``doubt``.
        limit: maximal number of groups, >= 1.

    Raises:
        InputError: if a column is missing, or the files are from different runs.
    """
    decisions.require(OF_A_ROW)
    groups.require(OF_A_GROUP)
    facts = _most_doubtful(groups, limit)
    rows = _rows_of(decisions, facts)
    absent = [number for number, places in rows.items() if not len(places)]
    if absent:
        raise InputError(
            f"{decisions.path} has no row of group {absent[0]}, which {groups.path} names ({len(absent):,} of "
            f"{len(rows):,} are missing); pass the two files of one run"
        )
    members = _members(decisions, [row for places in rows.values() for row in places[:MOST_MEMBERS].tolist()])
    return [
        _group(fact, [members[row] for row in rows[number][:MOST_MEMBERS].tolist()], len(rows[number]))
        for number, fact in facts.items()
    ]


def _most_doubtful(groups: Table, limit: int) -> dict[int, dict[str, Any]]:
    """Return the facts of the most doubtful groups, in display order."""
    parts = [(np.zeros(0, np.int64), np.zeros(0))]
    for batch in groups.batches([GROUP, MARGIN]):
        parts.append((_integers(batch.column(0)), _numbers(batch.column(1))))
    number, margin = (np.concatenate(column) for column in zip(*parts, strict=True))
    chosen = np.lexsort((number, margin))[:limit]  # NaN last
    facts = groups.take(chosen, OF_A_GROUP).to_pylist()
    return dict(zip(number[chosen].tolist(), facts, strict=True))


def _rows_of(decisions: Table, facts: Mapping[int, dict[str, Any]]) -> dict[int, NDArray[np.int64]]:
    """Return the rows of each group, as indices into the decisions: kept row first, then by doubt, then file order."""
    numbers = pa.array(list(facts), pa.int64())
    elsewhere = pa.array([number for number, fact in facts.items() if fact["other_table"]], pa.int64())
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, bool))]
    for first, batch in decisions.numbered([KEY, "decision", GROUP, KEPT_KEY, *CALL]):
        inside = np.flatnonzero(_is_in(batch.column(GROUP), numbers))
        part = batch.take(pa.array(inside))
        is_kept = _is_kept(part) & ~_is_in(part.column(GROUP), elsewhere)
        away = doubt(*(_numbers(part.column(name)) for name in CALL))
        parts.append((first + inside, _integers(part.column(GROUP)), away, is_kept))
    row, group, away, is_kept = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((row, away, ~is_kept, group))
    row, group = row[order], group[order]
    return {
        number: row[np.searchsorted(group, number) : np.searchsorted(group, number, side="right")] for number in facts
    }


def _is_in(column: pa.Array, numbers: pa.Array) -> NDArray[np.bool_]:
    is_in = pc.is_in(column.cast(pa.int64()), value_set=numbers, skip_nulls=True)
    return np.asarray(is_in.to_numpy(zero_copy_only=False), bool)


def _integers(column: pa.Array) -> NDArray[np.int64]:
    return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    """Return numbers, NaN for null."""
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def _is_kept(rows: pa.RecordBatch) -> NDArray[np.bool_]:
    """Return a mask of the rows that are kept rows of their groups."""
    keeps_itself = pc.fill_null(
        pc.equal(rows.column(KEPT_KEY).cast(pa.string()), rows.column(KEY).cast(pa.string())), True
    )
    keep = pc.equal(rows.column("decision").cast(pa.string()), "keep")
    return np.asarray(pc.fill_null(pc.and_(keeps_itself, keep), False).to_numpy(zero_copy_only=False), bool)


def _members(decisions: Table, rows: Sequence[int]) -> dict[int, Member]:
    return {
        row: Member(
            key=str(values[KEY]),
            is_kept=values["decision"] == "keep" and values[KEPT_KEY] in (None, values[KEY]),
            is_elsewhere=False,
            decision=str(values["decision"]),
            similarity=values[SCORE],
            threshold=values["threshold"],
            reason=str(values["reason"] or ""),
        )
        for row, values in zip(rows, decisions.take(rows, OF_A_ROW).to_pylist(), strict=True)
    }


def _group(fact: dict[str, Any], members: list[Member], size: int) -> Group:
    if fact["other_table"]:
        kept = Member(str(fact[KEPT_KEY]), True, True, "keep", None, None, "")
        members = [kept, *(replace(member, is_kept=False) for member in members[: MOST_MEMBERS - 1])]
        size += 1
    return Group(
        number=int(fact[GROUP]),
        members=members,
        size=size,
        smallest=fact["smallest_similarity"],
        measure=str(fact["measure"] or ""),
        finders=_listed(fact["finders"]),
        labels=_listed(fact["labels"]),
        is_conflict=bool(fact["conflict"]),
    )


def _listed(value: Any) -> str:
    """Return a text, or a list of at most ten, as one text."""
    if value is None:
        return ""
    if not isinstance(value, list):
        return str(value)
    more = f" and {len(value) - 10:,} more" if len(value) > 10 else ""
    return ", ".join(str(item) for item in value[:10]) + more
