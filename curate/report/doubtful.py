"""Decisions of a deduplication -> the groups that a person should look at first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY
from curate.table import Table
from scoring.errors import InputError

GROUP, KEPT_KEY, SCORE = "group", "kept_key", "score"
CALL = (SCORE, "threshold", "margin")
OF_A_ROW = (KEY, "decision", "reason", GROUP, KEPT_KEY, *CALL)
SMALLEST = "smallest_similarity"
OF_A_GROUP = (GROUP, KEPT_KEY, SMALLEST, "finders", "labels", "conflict")
MOST_MEMBERS = 12


@dataclass(frozen=True)
class Member:
    """One row of a group: how similar it is to the kept one in the unit of its finder, and why it was decided so.

    Attributes:
        key: of the row.
        is_kept: whether it is the one that stands for the group.
        is_elsewhere: whether it is a row of the other set, and not among those that were decided.
        decision: ``keep`` or ``drop``.
        similarity: to the kept one; None for the kept one itself, or where the finder knows only equal.
        threshold: that the similarity had to reach; likewise.
        reason: in words.
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
    """Rows that are the same, the kept one first, then the most doubtful; at most ``MOST_MEMBERS`` of ``size``.

    Attributes:
        number: of the group, as in the files.
        members: those to show.
        size: rows in the group, the kept one included.
        smallest: the smallest similarity in the group, or None where it has no number.
        finders: which found it, in words.
        labels: which its rows carry, in words.
        is_conflict: whether they carry different labels.
    """

    number: int
    members: list[Member]
    size: int
    smallest: float | None
    finders: str
    labels: str
    is_conflict: bool

    @property
    def n_hidden(self) -> int:
        """Rows that are not shown."""
        return self.size - len(self.members)


@dataclass(frozen=True)
class _Rows:
    """Rows in groups: row number of the decisions, group, doubt and whether it is the kept one; each shape (M,)."""

    row: NDArray[np.int64]
    group: NDArray[np.int64]
    doubt: NDArray[np.float64]
    is_kept: NDArray[np.bool_]


def doubt(similarity: NDArray[Any], threshold: NDArray[Any], margin: NDArray[Any]) -> NDArray[np.float64]:
    """Return how far each similarity is from its threshold: 0 is on the edge, 1 is equality, inf has no threshold.

    Cosines and differing bits are made comparable by the way that is left to equality: from the threshold up to 1
    where higher is more alike, down to 0 where lower is. Below 0 is a row that only a chain joins to the kept one. A
    threshold that only equality meets leaves no doubt: inf.

    Args:
        similarity: to the kept row, shape (N,), in the unit of its finder; NaN where there is none.
        threshold: likewise.
        margin: by how much the similarity reaches the threshold, shape (N,); negative where it does not.
    """
    is_higher = (similarity - threshold) * margin >= 0
    way = np.where(is_higher, 1 - threshold, threshold)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(way > 0, margin / way, margin)
    sure = (margin == 0) & ((threshold == 1) | (threshold == 0))
    return np.asarray(np.where(np.isnan(share) | sure, np.inf, share), np.float64)


def doubtful_groups(decisions: Table, groups: Table, *, limit: int) -> list[Group]:
    """Return the groups whose closest call is closest, the most doubtful first; ties go to the lower number.

    Memory follows the rows that are in groups (25 bytes each), never their texts.

    Args:
        decisions: of a deduplication.
        groups: of the same run.
        limit: the most groups, >= 1.

    Raises:
        InputError: if a column is missing, the limit is below 1, or the two files are of different runs.
    """
    if limit < 1:
        raise InputError(f"expected at least 1 group to draw, got {limit}; give --groups a number from 1 on")
    decisions.require(OF_A_ROW)
    groups.require(OF_A_GROUP)
    rows = _rows_in_groups(decisions)
    if not len(rows.row):
        return []
    numbers, start, sizes = np.unique(rows.group, return_index=True, return_counts=True)
    closest = np.minimum.reduceat(rows.doubt, start)
    n_kept = np.add.reduceat(rows.is_kept.astype(np.int64), start)
    order = np.lexsort((numbers, closest))
    chosen = order[(sizes > n_kept)[order]][:limit].tolist()  # a row alone is no group
    facts = _facts(groups, decisions, numbers[chosen].tolist())
    parts = {at: rows.row[start[at] : start[at] + min(MOST_MEMBERS, sizes[at])].tolist() for at in chosen}
    members = _members(decisions, [row for part in parts.values() for row in part])
    return [_group(facts[int(numbers[at])], [members[row] for row in parts[at]], int(sizes[at])) for at in chosen]


def _rows_in_groups(decisions: Table) -> _Rows:
    """Rows with a group, sorted by group, then the kept one first, then by doubt, then as in the file."""
    empty = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, bool))
    parts: list[tuple[NDArray[Any], ...]] = [empty]
    first = 0
    for batch in decisions.batches([KEY, "decision", GROUP, KEPT_KEY, *CALL]):
        inside = np.flatnonzero(batch.column(GROUP).is_valid().to_numpy(zero_copy_only=False))
        part = batch.take(pa.array(inside))
        call = [part.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False) for name in CALL]
        is_kept = _is_kept(part)
        away = np.where(is_kept, np.inf, doubt(*call))
        parts.append((first + inside, _integers(part.column(GROUP)), away, is_kept))
        first += batch.num_rows
    row, group, away, is_kept = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((row, away, ~is_kept, group))
    return _Rows(row[order], group[order], away[order], is_kept[order])


def _integers(column: pa.Array) -> NDArray[np.int64]:
    return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def _is_kept(rows: pa.RecordBatch) -> NDArray[np.bool_]:
    """Which rows stand for their group: kept, and in nobody else's place."""
    own = pc.fill_null(pc.equal(rows.column(KEPT_KEY).cast(pa.string()), rows.column(KEY).cast(pa.string())), True)
    keep = pc.equal(rows.column("decision").cast(pa.string()), "keep")
    return np.asarray(pc.fill_null(pc.and_(own, keep), False).to_numpy(zero_copy_only=False), bool)


def _facts(groups: Table, decisions: Table, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
    """What the table of groups says of each."""
    wanted = pa.array(numbers, pa.int64())
    found: dict[int, dict[str, Any]] = {}
    for batch in groups.batches(OF_A_GROUP):
        inside = pc.is_in(batch.column(GROUP).cast(pa.int64()), value_set=wanted)
        found.update({int(values[GROUP]): values for values in batch.filter(inside).to_pylist()})
    absent = [number for number in numbers if number not in found]
    if absent:
        raise InputError(
            f"{groups.path} has no group {absent[0]}, which {decisions.path} names ({len(absent):,} of "
            f"{len(numbers):,} are missing); give the two files of one run"
        )
    return found


def _members(decisions: Table, rows: Sequence[int]) -> dict[int, Member]:
    """Rows of the decisions, by their number."""
    wanted = np.sort(np.asarray(rows, np.int64))
    found: dict[int, Member] = {}
    first = 0
    for batch in decisions.batches(OF_A_ROW):
        inside = wanted[np.searchsorted(wanted, first) : np.searchsorted(wanted, first + batch.num_rows)]
        part = batch.take(pa.array(inside - first))
        for row, values, is_kept in zip(inside.tolist(), part.to_pylist(), _is_kept(part).tolist(), strict=True):
            found[row] = Member(
                key=str(values[KEY]),
                is_kept=is_kept,
                is_elsewhere=False,
                decision=str(values["decision"]),
                similarity=values[SCORE],
                threshold=values["threshold"],
                reason=str(values["reason"] or ""),
            )
        first += batch.num_rows
    return found


def _group(fact: dict[str, Any], members: list[Member], size: int) -> Group:
    if not members[0].is_kept:
        kept = Member(str(fact[KEPT_KEY]), True, True, "keep", None, None, "")
        members = [kept, *members[: MOST_MEMBERS - 1]]
        size += 1
    return Group(
        number=int(fact[GROUP]),
        members=members,
        size=size,
        smallest=fact[SMALLEST],
        finders=_listed(fact["finders"]),
        labels=_listed(fact["labels"]),
        is_conflict=bool(fact["conflict"]),
    )


def _listed(value: Any) -> str:
    """A text, or a list of them, in words; at most ten are named."""
    if value is None:
        return ""
    if not isinstance(value, list):
        return str(value)
    more = f" and {len(value) - 10:,} more" if len(value) > 10 else ""
    return ", ".join(str(item) for item in value[:10]) + more
