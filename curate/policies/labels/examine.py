"""Estimation of the quality of the labels in a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import EMBEDDING
from curate.counted import counted
from curate.policies.contract import Request
from curate.policies.reviewed import LINES, OPTION, Reviewed, VerdictLines, relabelled, with_images
from curate.policies.reviewed import RULE as VERDICTS
from curate.policies.verdicts import KEEP, LABELS
from curate.probes.probabilities import codes_among
from curate.statistics.noise.annotators import majority, weigh
from curate.statistics.noise.quality import Mistakes, confident_joint, judge
from curate.statistics.noise.share import Shares, shares
from curate.tables.digests import value_type
from curate.tables.known import Votes, read_votes
from curate.tables.needs import Needs
from curate.tables.rows import Codes, Rows, read_rows
from curate.tables.table import Table
from curate.tables.vectors import EMBEDDING_PROBLEMS
from scoring.errors import InputError
from scoring.metrics.resampling import Interval
from scoring.relative.space import centred, mean_of
from scoring.settings import require_seed

if TYPE_CHECKING:
    from curate.probes.crossed import LabelEvidence

RULE = "labels"
QUALITY, SUGGESTED, WHY, AGREEMENT = "label_quality", "suggested_label", "label_why", "label_agreement"
MEANINGS: dict[str, str] = {
    QUALITY: (
        "confidence that the label is right, 0 to 1; below 0.5 another class is more likely; null if it "
        "cannot be judged"
    ),
    SUGGESTED: "the most likely class: the label itself, unless its quality is below 0.5",
    WHY: "what contradicts the label: probe, neighbours, joint (confident learning), copy (a copy has another label)",
    AGREEMENT: "share of the annotators' labels that equal the majority's",
}
MOST_CLASSES = 10_000
FEWEST_ROWS = 2
NOBODY = "(no annotator named)"  # annotator of labels without a name in the file
NAN = "nan"  # what is no number, as text
NO_LABEL, ALONE = "no label", "no other row of its class"
REASONS = (NO_LABEL, ALONE, *EMBEDDING_PROBLEMS)
PROBE, NEIGHBOURS, JOINT, COPY = 1, 2, 4, 8  # kinds of evidence against a label
WITNESSES = {PROBE: "probe", NEIGHBOURS: "neighbours", JOINT: "joint", COPY: "copy"}


@dataclass(frozen=True)
class LabelsRequest(Request):
    """The validated request; fields are as in ``LabelsOptions`` except for these.

    Attributes:
        drop: whether rows with a suspected label are dropped.

    Raises:
        InputError: for values out of range.
    """

    rule: ClassVar[str] = RULE
    beside: ClassVar[tuple[str, ...]] = (VERDICTS, LINES)
    label: tuple[str, ...]
    drop: bool = False
    relabel: str | None = None
    below: float = 0.5
    seed: int = 0
    labelled: str | None = None

    def __post_init__(self) -> None:
        if not self.label and self.labelled is None:
            raise InputError(
                "expected a column of labels, got none; choose it with --label COLUMN, or a file of them with "
                "--labelled; curate score --label-from-folder makes one of class folders"
            )
        if len(self.label) > 1 and self.labelled is not None:
            raise InputError(
                f"--labelled takes one column of {self.labelled}, got --label "
                f"{', --label '.join(self.label)}; choose one: annotators are separated by the column 'annotator'"
            )
        if len(set(self.label)) < len(self.label):
            raise InputError(f"expected each column of labels once, got {', '.join(self.label)}; pass each once")
        if not 0 < self.below <= 1:
            raise InputError(f"--below must be in (0, 1], got {self.below:g}; 0.5 is usual")
        require_seed(self.seed)
        if self.drop and self.relabel is not None:
            raise InputError("--drop-suspected drops the rows that --relabel would correct; choose one of them")
        if self.relabel is not None and not self.relabel.strip():
            raise InputError("--relabel takes the name of a new column, got an empty text; choose one")

    @property
    def columns(self) -> tuple[str, ...]:
        """The label columns of the table."""
        return () if self.labelled is not None else self.label

    def check(self, table: Table) -> None:
        """Raise InputError for missing embeddings or label columns, or an added column that exists."""
        table.require(self.columns)
        if EMBEDDING not in table.schema.names:
            raise InputError(
                f"{table.path} has no column {EMBEDDING!r}, which judging labels needs; score the images without "
                "--no-embedding, or choose your own column with --embedding"
            )
        taken = [QUALITY, SUGGESTED, WHY, AGREEMENT]
        if self.relabel is not None and self.relabel in (*table.schema.names, *taken):
            raise InputError(
                f"--relabel adds a column, and {self.relabel!r} exists already, and is never overwritten; "
                "choose another name"
            )


@dataclass(frozen=True)
class Examined:
    """The estimated quality of the labels of N rows, in the order of the table.

    Attributes:
        table: whose labels were examined.
        request: what was requested.
        rows: as read, in the order of the hashes of their keys.
        hashes: hashes of the keys, shape (N,).
        ok: whether the image was scored, shape (N,).
        classes: names of the C classes, sorted.
        labels: the label, or the majority of votes, shape (N,) int32; -1 for none.
        quality: shape (N,) float32; NaN if unknown.
        suggested: shape (N,) int32; -1 without an embedding.
        rival: the most likely other class, shape (N,) int32; -1 if unknown.
        against: evidence against the label, shape (N,) uint8, a sum of ``WITNESSES``.
        reason: why the quality is unknown, shape (N,) int8, an index into ``REASONS``; -1 if known.
        shares: of wrong labels.
        agreement: of annotators, shape (N,) float32; None for a single column.
        annotators: accuracy of each annotator; empty for a single column.
        alike: share of pairs of annotators' labels that agree; NaN for a single column.
        named: names of the annotators, or their columns.
        votes_digest: of labels from a file or rounds; empty without.
        reviewed: the reviewers' decisions; None without verdicts.
        settled: mask of rows whose label a reviewer confirmed or changed, which have quality 1, shape (N,).
    """

    table: Table
    request: LabelsRequest
    rows: Rows
    hashes: NDArray[np.uint64]
    ok: NDArray[np.bool_]
    classes: list[str]
    labels: NDArray[np.int32]
    quality: NDArray[np.float32]
    suggested: NDArray[np.int32]
    rival: NDArray[np.int32]
    against: NDArray[np.uint8]
    reason: NDArray[np.int8]
    shares: Shares
    agreement: NDArray[np.float32] | None = None
    annotators: list[Interval] = field(default_factory=list)
    alike: float = float("nan")
    named: Sequence[str] = ()
    votes_digest: str = ""
    reviewed: Reviewed | None = None
    settled: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    @cached_property
    def suspected(self) -> NDArray[np.bool_]:
        """Whether each label is suspected, shape (N,); undefined for rows that a reviewer dropped."""
        is_suspected = np.asarray(self.quality < self.request.below)  # False for NaN
        return is_suspected if self.reviewed is None else is_suspected & ~self.reviewed.drop

    def why(self) -> pa.Array:
        """Return the evidence against each label as text; null for none, shape (N,)."""
        words = [", ".join(word for bit, word in WITNESSES.items() if code & bit) or None for code in range(16)]
        return pa.array(words, pa.string()).take(pa.array(self.against))

    @cached_property
    def typed_classes(self) -> pa.Array:
        """The classes, in the type of their column."""
        texts = pa.array(self.classes, pa.string())
        if not self.request.columns:
            return texts
        try:
            return texts.cast(value_type(self.table.schema.field(self.request.columns[0]).type))
        except pa.ArrowException:  # columns of other types, or that text cannot be converted to
            return texts

    @property
    def same_classes(self) -> dict[str, str]:
        """Return added column -> the column of the table with the same classes; empty if there are several."""
        if len(self.request.columns) != 1 or (self.reviewed is not None and self.reviewed.labels):
            return {}
        added = (SUGGESTED, *([self.request.relabel] if self.request.relabel else []))
        return dict.fromkeys(added, self.request.columns[0])

    def of_codes(self, codes: NDArray[np.int32]) -> pa.Array:
        """Return the classes of codes; null for -1."""
        return self.typed_classes.take(pa.array(codes, mask=codes < 0))

    def columns(self, rows: NDArray[np.int64]) -> pa.Table:
        """Return the added columns for the given rows."""
        quality, request = self.quality[rows], self.request
        columns = {
            QUALITY: pa.array(quality, mask=np.isnan(quality)),
            SUGGESTED: self.of_codes(self.suggested[rows]),
            WHY: self.why().take(pa.array(rows)),
        }
        if self.agreement is not None:
            columns[AGREEMENT] = pa.array(self.agreement[rows], mask=np.isnan(self.agreement[rows]))
        if request.relabel is not None:
            corrected = np.where(self.suspected, self.suggested, self.labels)
            columns[request.relabel] = self.of_codes(corrected[rows].astype(np.int32))
        if self.reviewed is not None:
            columns |= relabelled(self.reviewed, self.table, rows)
        return pa.table(columns)


def examine(table: Table, request: LabelsRequest, verdicts: VerdictLines | None = None) -> Examined:
    """Estimate the quality of every label of a table from the other rows, independent of the row order.

    Args:
        table: with embeddings.
        request: with its parameters.
        verdicts: of reviewers; the labels that they confirmed or changed are used as correct for other rows.

    Raises:
        InputError: for a table without embeddings, a missing column or one of lists, uninformative labels, or verdicts
            of another table.
    """
    request.check(table)
    from curate.probes.crossed import crossed  # these import torch
    from curate.tables.dataset import read_dataset

    reviewed = None if verdicts is None else _reviewed(table, request, verdicts)
    read = None if request.labelled is None else read_votes(request.labelled, next(iter(request.label), None))
    dataset = read_dataset(table, names=request.columns, once=False)
    rows, at = dataset.rows, dataset.at
    votes, who, classes = _votes_of(table, rows, request, read, reviewed)
    labels = majority(votes, rows.hashes)
    _refuse(labels[at], classes, request, table)
    units = centred(dataset.embeddings, mean_of(dataset.embeddings))
    del dataset
    rows.embedding = None  # frees half as much memory as the units take
    evidence = crossed(units, labels[at], len(classes), seed=request.seed)
    del units
    probabilities = evidence.probabilities
    joint = confident_joint(probabilities, labels[at], len(classes))
    judged = judge(probabilities, labels[at], Mistakes.of(joint))
    quality, suggested, of_several = judged.quality, judged.suggested, dict[str, Any]()
    if votes.shape[1] > 1:
        weighed = weigh(probabilities, votes[at], labels[at], len(classes), None if who is None else who[at])
        quality = np.where(np.isnan(probabilities.of_label), np.nan, weighed.quality).astype(np.float32)
        suggested, agreement = weighed.suggested, rows.in_table(weighed.agreement, at, np.nan)
        of_several = {"agreement": agreement, "annotators": weighed.accuracy, "alike": weighed.pairs}
    settled = _settled(rows, labels, reviewed, request)
    quality = np.where(settled[at], 1, quality).astype(np.float32)
    suggested = np.where(settled[at], labels[at], suggested).astype(np.int32)
    reason = np.where(settled, -1, _reasons(rows, at[np.isnan(probabilities.of_label)], labels)).astype(np.int8)
    against = np.where(settled[at], 0, _evidence(evidence, labels[at], joint.confident)).astype(np.uint8)
    return Examined(
        table=table,
        request=request,
        rows=rows,
        hashes=rows.in_table(rows.hashes),
        ok=rows.in_table(rows.ok),
        classes=classes,
        labels=rows.in_table(labels.astype(np.int32)),
        quality=rows.in_table(quality, at, np.nan),
        suggested=rows.in_table(suggested, at, -1),
        rival=rows.in_table(np.where(np.isnan(probabilities.of_label), -1, judged.rival).astype(np.int32), at, -1),
        against=rows.in_table(against, at, 0),
        reason=rows.in_table(reason),
        shares=shares(probabilities, labels[at], joint, quality < request.below, suggested),
        named=request.columns if read is None else [name or NOBODY for name in read.annotators],
        votes_digest="" if read is None else read.digest,
        reviewed=reviewed,
        settled=rows.in_table(settled),
        **of_several,
    )


def _votes_of(
    table: Table, rows: Rows, request: LabelsRequest, read: Votes | None, reviewed: Reviewed | None
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None, list[str]]:
    """Return votes, (N, A), the annotator of each or None, and the classes, with the reviewers' labels."""
    if read is None:
        (votes, classes), who = _votes(table, rows, request.columns), None
    else:
        (votes, who), classes = read.of(rows, str(table.path)), read.classes
    if reviewed is not None:
        classes = _relabel(votes, classes, reviewed.labels.get(request.columns[0], {}), rows)
    return votes, who, classes


def _reviewed(table: Table, request: LabelsRequest, verdicts: VerdictLines) -> Reviewed:
    """Return the decisions of reviewers, in the row order of the table."""
    if len(request.columns) != 1:
        raise InputError(f"{OPTION} settles the labels of one column of the table; pass only that as --label")
    return verdicts.reviewed(read_rows(table, with_images(Needs(), table)))


def _relabel(votes: NDArray[np.int64], classes: list[str], new: Mapping[int, str], rows: Rows) -> list[str]:
    """Replace ``votes``, shape (N, 1), by the reviewers' labels in place; return all classes."""
    more = sorted(set(new.values()) - set(classes))
    place = {name: code for code, name in enumerate([*classes, *more])}
    at = np.empty(len(rows), np.int64)
    at[rows.place] = np.arange(len(rows))
    for row, label in new.items():
        votes[at[row], 0] = place[label]
    return [*classes, *more]


def _settled(
    rows: Rows, labels: NDArray[np.int64], reviewed: Reviewed | None, request: LabelsRequest
) -> NDArray[np.bool_]:
    """Return a mask of the labels that a reviewer confirmed or corrected, shape (N,), for rows with an embedding."""
    if reviewed is None:
        return np.zeros(len(rows), bool)
    settled = reviewed.answered(LABELS, KEEP)
    settled[list(reviewed.labels.get(request.columns[0], {}))] = True
    return np.asarray(settled[rows.place] & rows.ok & (labels >= 0) & (rows.embedding_problem == 0))


def _votes(table: Table, rows: Rows, columns: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """Return the class in each column and row, shape (N, A), -1 for none, and the names of all classes."""
    read: list[Codes] = []
    for name in columns:
        codes = rows.names[name]
        if pa.types.is_floating(table.schema.field(name).type) and NAN in codes.names:
            missing = codes.codes == codes.names.index(NAN)
            codes = Codes(np.where(missing, -1, codes.codes).astype(np.int32), codes.names)
        read.append(codes)
    used = {codes.names[code] for codes in read for code in np.unique(codes.codes[codes.codes >= 0]).tolist()}
    classes = sorted(used)
    return np.stack([codes_among(classes, each.names, each.codes) for each in read], 1), classes


def _refuse(labels: NDArray[np.int64], classes: list[str], request: LabelsRequest, table: Table) -> None:
    columns = f"column {', '.join(map(repr, request.columns))}"
    place = f"{columns if request.labelled is None else f'{request.labelled}, of rows'} of {table.path}"
    n = int((labels >= 0).sum())
    present, counts = np.unique(labels[labels >= 0], return_counts=True)
    if len(present) < 2:
        got = f"{counted(n, 'row')} of {classes[present[0]][:40]!r} alone" if n else "none"
        raise InputError(
            f"expected images with an embedding and labels of at least two classes in {place}, got {got}; "
            "choose another column with --label"
        )
    if len(classes) > MOST_CLASSES:
        raise InputError(
            f"expected at most {MOST_CLASSES:,} classes in {place}, got {len(classes):,} in "
            f"{counted(n, 'row')}; choose a column of classes with --label"
        )
    if (counts >= FEWEST_ROWS).sum() < 2:
        raise InputError(
            f"expected at least two classes of two rows or more in {place}, got "
            f"{counted(n, 'row')} of {len(present):,} classes; choose a coarser column with --label"
        )


def _evidence(evidence: "LabelEvidence", labels: NDArray[np.int64], confident: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Return the evidence against each label, shape (N,), a sum of ``WITNESSES``."""
    other = labels[evidence.copy.clip(0)]
    against = np.where(evidence.probe != labels, PROBE, 0)
    against += np.where((evidence.voted >= 0) & (evidence.voted != labels), NEIGHBOURS, 0)
    against += np.where((confident >= 0) & (confident != labels), JOINT, 0)
    against += np.where((evidence.copy >= 0) & (other != labels), COPY, 0)
    return np.where(np.isnan(evidence.probabilities.of_label), 0, against).astype(np.uint8)


def _reasons(rows: Rows, unknown: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return why each quality is unknown, shape (N,): no label, no other row of its class, or no embedding."""
    reason = np.full(len(rows), -1, np.int8)
    problem = rows.embedding_problem.astype(np.int8)
    reason[problem > 0] = problem[problem > 0] + 1
    reason[unknown] = 1
    reason[labels < 0] = 0
    return reason
