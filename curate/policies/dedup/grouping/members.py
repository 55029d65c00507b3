"""Groups as a table: rows, similarities, and agreement of labels."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.policies.dedup.finders.searches import Search
from curate.policies.dedup.finders.table import FINDERS
from curate.policies.dedup.grouping.stars import Stars
from curate.tables.keys import keys_at
from curate.tables.rows import Rows
from curate.tables.table import Table
from scoring.arrays import Array, Floats, Ints, Mask

ALL_PAIRS = 64  # group size up to which all pairs are measured
SOME_PAIRS = 2016  # pairs measured in a larger group in addition to those with the kept row: as many as 64 rows have
AT_ONCE = 1_000_000  # pairs measured at a time
# finders for the smallest similarity; the first one in use
MEASURES = ("signature", "embedding", "near-duplicate", "crop", "hash", "bytes")
TEXTS = pa.list_(pa.string())
COLUMNS: dict[str, tuple[pa.DataType, bool, str]] = {  # name -> type, whether values may be missing, meaning
    "group": (pa.int64(), False, "number of the group, as in the decisions; larger groups come first"),
    "kept_key": (pa.string(), False, "the kept row, or the equal row of the other table"),
    "other_table": (pa.bool_(), False, "whether kept_key is a row of the other table"),
    "size": (pa.int64(), False, "rows of this table in the group, the one that stays among them"),
    "smallest_similarity": (
        pa.float64(),
        True,
        f"of any two rows (above {ALL_PAIRS} rows: with the first, and {SOME_PAIRS:,} other pairs)",
    ),
    "measure": (pa.string(), True, "the finder that computed the similarity"),
    "margin": (pa.float64(), True, "of the most doubtful row: 0 has just reached its threshold, 1 is equal"),
    "finders": (TEXTS, True, "the finders that dropped its rows"),
    "labels": (TEXTS, True, "the different labels of its rows, of undecided ones only of crops"),
    "conflict": (pa.bool_(), False, "whether there are two or more labels"),
    "lower_quality": (
        pa.bool_(),
        True,
        "whether the kept image is of lower quality than a dropped one; null if unknown",
    ),
}
MEANINGS = {name: meaning for name, (_, _, meaning) in COLUMNS.items()}
SCHEMA = pa.schema([pa.field(name, kind, nullable=nullable) for name, (kind, nullable, _) in COLUMNS.items()])


@dataclass(frozen=True)
class Members:
    """Rows by group.

    Attributes:
        group: of each row, shape (N,) int64; -1 for none. Larger groups have lower numbers.
        rows: rows sorted by group, then order of keeping, shape (M,).
        start: first position of each group in ``rows``, shape (G + 1,).
        size: rows of this table in each group, shape (G,).
        stars: the groups.
        outside: mask of rows whose owner is a row of the other table, shape (N,).
    """

    group: Ints
    rows: Ints
    start: Ints
    size: Ints
    stars: Stars
    outside: Mask

    @property
    def first(self) -> Ints:
        """The first row of each group, shape (G,): the kept one, if it is in this table."""
        return self.rows[self.start[:-1]]

    def table(
        self,
        table: Table,
        thresholds: Mapping[str, float],
        searches: Mapping[str, Search],
        kept_key: pa.Array,
        texts: pa.ChunkedArray | None = None,
        ranks: Ints | None = None,
    ) -> pa.Table:
        """Return one row per group, in ``SCHEMA``.

        ``texts`` are the labels of all rows, null for none; lower ``ranks`` mean a larger loss.
        """
        number, names = self.group[self.rows], pa.array(self.stars.names, pa.string())
        measure = next(name for name in MEASURES if name in searches)
        columns = {
            "group": pa.array(np.arange(len(self.size))),
            "kept_key": self._kept_keys(table, kept_key),
            "other_table": pa.array(self.outside[self.first]),
            "size": pa.array(self.size),
            "smallest_similarity": pa.array(self._smallest(searches, measure)),
            "measure": pa.array([measure] * len(self.size), pa.string()),
            "margin": pa.array(self._margin(thresholds)),
            "finders": _lists(number, names, self.stars.finder[self.rows], len(self.size)),
        }
        labels, conflict = self._labels(texts)
        columns |= {"labels": labels, "conflict": conflict, "lower_quality": self._lower(ranks)}
        return pa.table({field.name: columns[field.name] for field in SCHEMA}, schema=SCHEMA)

    def _kept_keys(self, table: Table, kept_key: pa.Array) -> pa.Array:
        """Return the key of each group's kept row: its first row, or a row of the other table."""
        outside = self.outside[self.first]
        mine = keys_at(table, np.where(outside, -1, self.first))
        other_keys = kept_key.take(pa.array(self.first)).to_numpy(zero_copy_only=False)
        return pa.array(np.where(outside, other_keys, mine), pa.string())

    def _lower(self, ranks: Ints | None) -> pa.Array:
        """Return whether the kept row has lower quality than another row of its group; null if unknown."""
        first = self.first
        if ranks is None or not len(first):
            return pa.nulls(len(first), pa.bool_())
        most = np.maximum.reduceat(ranks[self.rows], self.start[:-1])
        return pa.array(ranks[first] < most, mask=self.outside[first])

    def _smallest(self, searches: Mapping[str, Search], measure: str) -> Floats:
        """Return the smallest similarity of each group's pairs, in large groups only of some pairs.

        Equal bytes count as equal, even if the finder cannot compare the image.
        """
        search, same, finder = searches[measure], searches.get("bytes"), FINDERS[measure]
        sign, best = (1.0, finder.highest) if finder.higher else (-1.0, finder.lowest)
        worst = np.full(len(self.size), np.inf)
        for size in np.unique(self.size[self.size > 1]).tolist():
            first, second = _pairs(size)
            step = max(1, AT_ONCE // len(first))
            groups = np.flatnonzero(self.size == size)
            for low in range(0, len(groups), step):
                some = groups[low : low + step]
                base = self.start[some, None]
                pairs = self.rows[base + first].ravel(), self.rows[base + second].ravel()
                similarity = search.measure(*pairs).similarity.astype(np.float64)
                if same is not None:
                    similarity[same.measure(*pairs).similarity == 1] = best
                worst[some] = (sign * similarity).reshape(len(some), -1).min(1)
        return np.where(np.isinf(worst), np.nan, sign * worst)

    def _margin(self, thresholds: Mapping[str, float]) -> Floats:
        """Return the smallest margin of each group: 0 is at the threshold, 1 is equality."""
        margin = np.full(len(self.size), np.inf)
        for number, name in enumerate(self.stars.names):
            rows = self.rows[self.stars.finder[self.rows] == number]
            room = FINDERS[name].margin(self.stars.similarity[rows], thresholds[name])
            np.minimum.at(margin, self.group[rows], room)
        return margin

    def _labels(self, texts: pa.ChunkedArray | None) -> tuple[pa.Array, pa.Array]:
        """Return the distinct labels of each group, and whether there is more than one; null is no label."""
        n = len(self.size)
        if texts is None:
            return pa.nulls(n, TEXTS), pa.array(np.zeros(n, bool))
        encoded = texts.take(pa.array(self.rows)).combine_chunks().dictionary_encode()
        code = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        lists = _lists(self.group[self.rows], encoded.dictionary.cast(pa.string()), code, n)
        return lists, pc.greater(pc.list_value_length(lists), 1)


def count_lower(groups: pa.Table) -> int | None:
    """Return the number of groups whose kept row has lower quality than a dropped one; None if unknown."""
    lower = groups.column("lower_quality")
    return int(pc.sum(lower).as_py() or 0) if not len(lower) or lower.null_count < len(lower) else None


def _pairs(size: int) -> tuple[Ints, Ints]:
    """Return the pairs of a group to measure, as indices in the group."""
    if size <= ALL_PAIRS:
        first, second = np.triu_indices(size, 1)
        return first, second
    step = np.arange(SOME_PAIRS)
    a, b = 1 + step * (size - 1) // SOME_PAIRS, 1 + step * 7919 % (size - 1)
    a, b = a[a != b], b[a != b]
    return np.concatenate([np.zeros(size - 1, np.int64), a]), np.concatenate([np.arange(1, size), b])


def _lists(group: Ints, names: pa.Array, code: Array, n: int) -> pa.Array:
    """Return the distinct names of each group, as lists; negative codes are ignored."""
    has_name = code >= 0
    width = max(1, len(names))
    pairs = np.unique(group[has_name] * width + code[has_name].astype(np.int64))
    counts = np.bincount(pairs // width, minlength=n)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names.take(pa.array(pairs % width)))


def group_rows(stars: Stars, outside: Mask, order: Ints, rows: Rows) -> Members:
    """Return the groups: larger ones first, then by the key hash of the first row."""
    n, place = len(stars.owner), np.argsort(order)
    owner = np.where(outside, n + stars.owner, stars.owner)  # rows of the other table are numbered from n
    in_table = np.flatnonzero(~outside & (stars.owner >= 0))
    owner[in_table] = owner[owner[in_table]]  # a row dropped for a row of the other table is in its group
    taking_part = np.flatnonzero(stars.owner >= 0)
    _, code = np.unique(owner[taking_part], return_inverse=True)
    counts = np.bincount(code)
    grouped = (counts[code] > 1) | outside[taking_part]
    members, code = taking_part[grouped], code[grouped]
    inside = np.lexsort((place[members], code))
    members, code = members[inside], code[inside]
    starts = np.flatnonzero(np.r_[True, code[1:] != code[:-1]]) if len(code) else np.zeros(0, np.int64)
    sizes = np.diff(np.r_[starts, len(code)])
    rank = np.lexsort((rows.hashes[members[starts]], -sizes))
    group = np.full(n, -1, np.int64)
    group[members] = np.repeat(np.argsort(rank), sizes)
    again = np.argsort(group[members], kind="stable")
    size = sizes[rank]
    return Members(group, members[again], np.concatenate([[0], np.cumsum(size)]), size, stars, outside)
