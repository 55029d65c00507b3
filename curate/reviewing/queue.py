"""The queue of a review: suspected images in groups of similar ones, most consequential first."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.policies.decided import DROP, KEEP, UNDECIDED
from curate.policies.issues.kinds import GROUPS
from curate.policies.verdicts import IMAGE
from curate.reporting.columns import Dataset
from curate.reporting.decided import Decided
from curate.reporting.findings import CONFLICT, COPIED, DEDUP, JUNK, LABEL, LEAK, NEAR, QUESTIONS, Finding
from curate.reviewing.clusters import Vectors, divided, halves, likely_and_not
from curate.tables.digests import text_hashes
from curate.tables.keys import named
from curate.tables.needs import Needs
from curate.tables.rows import read_rows
from curate.tables.table import Table

SHOWN = 48  # maximal images of a group shown; more are sampled
SPARSE = 0.02  # prior share of bad images in a group
OF_KIND = {LEAK: 1.0, CONFLICT: 1.0, LABEL: 0.5, NEAR: 0.5, COPIED: 0.0}
OPEN = "undecided"
OF_LOOKS = (JUNK, GROUPS, OPEN)  # kinds that depend on content, not on a measure
SIZES = ("width", "height")
ROUNDED = 2.0  # pixels by which the sides of a resized image may be off
NEAR_WORDS = "copies, or two objects on one background"
EQUAL = "bytes"  # the rule of equal files
OF_DEDUP = ("reason", "rule", "score", "kept_key")
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Similar images with the same suspected problem.

    Attributes:
        id: a hash of kind and keys, the same in every session.
        kind: of the problem.
        words: description of the problem.
        question: for the reviewer: ``image``, ``copy``, ``label`` or ``leak``.
        rows: indices in the table, shape (M,), worst first.
        texts: reason for each row.
        beside: row to compare each row with, shape (M,); -1 or empty for none.
        label: the label suggested for all of them; empty for none.
        weights: probability that each image is wrong, shape (M,).
        vectors: of the images, shape (M, D), or None.
    """

    id: str
    kind: str
    words: str
    question: str
    rows: Rows
    texts: Sequence[str]
    beside: Rows
    label: str
    weights: NDArray[np.float64]
    vectors: Vectors | None = field(repr=False, default=None)

    def part(self, places: Sequence[int] | NDArray[np.int64], id: str) -> "Group":
        """Return a group of the rows at the given positions."""
        at = np.asarray(places, np.int64)
        return Group(
            id,
            self.kind,
            self.words,
            self.question,
            self.rows[at],
            [self.texts[place] for place in at.tolist()],
            self.beside[at] if len(self.beside) else self.beside,
            self.label,
            self.weights[at],
            None if self.vectors is None else self.vectors[at],
        )

    def split(self, keys: Mapping[int, str]) -> list["Group"]:
        """Return two groups of more similar images, or halves by position; only this group if it has one row."""
        if len(self.rows) < 2:
            return [self]
        parts = likely_and_not(self.weights)
        if len(parts) < 2 and self.vectors is not None:
            parts = halves(self.vectors)
        if len(parts) < 2:
            half = (len(self.rows) + 1) // 2
            parts = [np.arange(half), np.arange(half, len(self.rows))]
        ids = [id_of(self.kind, (keys[row] for row in self.rows[part].tolist())) for part in parts]
        return _numbered([self.part(part, id) for part, id in zip(parts, ids, strict=True)])


def id_of(kind: str, keys: Iterable[str]) -> str:
    """Return the id of a group."""
    digest = hashlib.sha256(kind.encode())
    for key in sorted(keys):
        digest.update(b"\0" + key.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]


def groups_of(
    findings: Sequence[Finding], decided: Decided, dataset: Dataset, vectors: Mapping[int, int], matrix: Vectors | None
) -> list[Group]:
    """Return the groups of a review, most consequential first.

    Args:
        findings: on kept rows, and on dropped copies.
        decided: the decisions on all rows; undecided rows are a group too.
        dataset: the table.
        vectors: row -> index into ``matrix``.
        matrix: unit vectors; None without embeddings.
    """
    junk = _junk(dataset)
    groups: list[Group] = []
    rows = np.unique(np.concatenate([np.zeros(0, np.int64), *(each.rows for each in findings)]))
    keys = dict(zip(rows.tolist(), named(dataset.table, rows), strict=True))
    open_ = np.flatnonzero(decided.outcome == UNDECIDED)
    if len(open_):
        keys |= dict(zip(open_.tolist(), named(dataset.table, open_), strict=True))
        texts = [text or OPEN for text in decided.reasons(open_)]
        findings = [*findings, Finding(OPEN, "no rule could decide", open_, np.zeros(len(open_)), texts)]
    for finding in findings:
        pairs = finding.kind in (NEAR, COPIED) and not finding.parts
        for words, part in _pairs(finding, dataset.table) if pairs else _parts(finding):
            units = None
            if matrix is not None and part.kind != COPIED:
                units = matrix[[vectors[row] for row in part.rows.tolist()]]
            weights = _weights(part, junk)
            for places in _divisions(part, weights, units):
                some = None if units is None else units[places]
                groups.append(_group(part.at(places.tolist()), words, keys, weights[places], some))
    return _numbered(sorted(groups, key=lambda group: (-group.weights.sum(), -len(group.rows), group.id)))


def _numbered(groups: Sequence[Group]) -> list[Group]:
    """Return the groups, with numbers added to equal descriptions."""
    number: Counter[tuple[str, str]] = Counter()
    total = Counter((each.kind, each.words) for each in groups)
    named_groups = []
    for each in groups:
        title = each.kind, each.words
        number[title] += 1
        words = f"{each.words}, {number[title]} of {total[title]}" if total[title] > 1 else each.words
        named_groups.append(replace(each, words=words))
    return named_groups


def dropped_copies(dataset: Dataset, decided: Decided) -> list[Finding]:
    """Return the copies that deduplications dropped, each next to the kept image."""
    copies = []
    for policy in decided.policies:
        table = policy.applied.decisions
        if policy.applied.name != DEDUP or table is None or not set(OF_DEDUP) <= set(table.schema.names):
            continue
        at = np.flatnonzero(policy.outcome == DROP)
        lines = table.take(at, list(OF_DEDUP)).to_pydict()
        beside = dataset.find(text_hashes(key or "" for key in lines["kept_key"]))
        is_kept = (beside >= 0) & (decided.outcome[beside] == KEEP)
        equal = np.array([rule == EQUAL for rule in lines["rule"]], bool)
        value = np.array(lines["score"], np.float64)
        every = Finding(COPIED, "", policy.row[at], value, lines["reason"], beside=beside)
        copies.append(every.of(is_kept & ~equal))
        same = every.of(is_kept & equal)
        copies.append(replace(same, parts=["equal files"] * len(same.rows)))
    return [each for each in copies if len(each.rows)]


def _parts(finding: Finding) -> Iterator[tuple[str, Finding]]:
    """Yield the parts of a finding, such as pairs of labels, by name."""
    if not finding.parts:
        yield finding.words, finding
    places: dict[str, list[int]] = {}
    for place, name in enumerate(finding.parts):
        places.setdefault(name, []).append(place)
    for name, some in places.items():
        yield name, finding.at(some)


def _pairs(finding: Finding, table: Table) -> Iterator[tuple[str, Finding]]:
    """Yield near copies by their size relative to the similar image: a resized copy keeps its aspect ratio."""
    copies = finding.at(np.flatnonzero(finding.beside >= 0).tolist())
    if not len(copies.rows):
        return
    if not set(SIZES) <= set(table.schema.names):
        yield NEAR_WORDS, copies
        return
    mine, other = (_sizes(table, rows) for rows in (copies.rows, copies.beside))
    same = (mine == other).all(1)
    shape = np.abs(mine[:, 0] * other[:, 1] / (mine[:, 1] * other[:, 0]) - 1) < ROUNDED / np.minimum(mine, other).min(1)
    for words, inside in (
        (f"of one size: {NEAR_WORDS}", same),
        ("smaller or larger copies of another image", shape & ~same),
        (f"of other shapes: {NEAR_WORDS}", ~shape & ~same),
    ):
        if inside.any():
            yield words, copies.at(np.flatnonzero(inside).tolist())


def _sizes(table: Table, rows: Rows) -> NDArray[np.float64]:
    """Return width and height of rows, shape (M, 2)."""
    order, inverse = np.unique(rows, return_inverse=True)
    taken = table.take(order, list(SIZES))
    return np.stack([np.asarray(taken.column(name).to_numpy(), np.float64) for name in SIZES], 1)[inverse]


def _weights(part: Finding, junk: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the probability that each image of a finding is wrong, shape (M,)."""
    n = len(part.rows)
    if part.kind in OF_KIND:
        return np.full(n, OF_KIND[part.kind])
    if junk is None:
        return np.full(n, 1.0 if part.kind == JUNK else SPARSE)
    return np.maximum(junk[part.rows], SPARSE)


def _divisions(part: Finding, weights: NDArray[np.float64], units: Vectors | None) -> list[Rows]:
    """Return the indices of a finding's images in groups."""
    if part.labels or part.kind in (NEAR, COPIED) or units is None:  # one question for all images
        return [np.arange(len(part.rows))]
    if part.kind in OF_LOOKS:
        return divided(units)
    return [half[places] for half in likely_and_not(weights) for places in divided(units[half], SHOWN + 1)]


def _group(
    part: Finding, words: str, keys: Mapping[int, str], weights: NDArray[np.float64], vectors: Vectors | None
) -> Group:
    label = part.labels[0] if part.labels and len(set(part.labels)) == 1 else ""
    question = QUESTIONS.get(part.kind, IMAGE)
    made = id_of(part.kind, (keys[row] for row in part.rows.tolist()))
    return Group(made, part.kind, words, question, part.rows, part.texts, part.beside, label, weights, vectors)


def _junk(dataset: Dataset) -> NDArray[np.float64] | None:
    """Return p_junk, 0 if missing, shape (N,); None without the column."""
    from scoring.relative.columns import JUNK as COLUMN

    if COLUMN not in dataset.table.schema.names:
        return None
    values: Any = read_rows(dataset.table, Needs(numbers=(COLUMN,), keys=False)).numbers[COLUMN]
    return np.asarray(np.nan_to_num(values, nan=0.0))
