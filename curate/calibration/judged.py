"""Rows with a known outcome: by a condition, by verdicts on a sample, or by the nearest labelled row."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.columns import describe
from curate.counted import counted
from curate.policies.audit.results import ANY, JUDGES
from curate.policies.audit.verdicts import LABEL_STUDIO, WORDS, Verdicts, is_audit, joined, read_audit
from curate.policies.sampled import judged_sha256
from curate.tables.arrays import FALSE, TRUE
from curate.tables.copies import columns_for_copies, find_copies
from curate.tables.digests import redrawn, text_hashes
from curate.tables.known import read_known
from curate.tables.needs import MAX, MIN, Needs, default_column
from curate.tables.rows import Rows, read_rows
from curate.tables.table import Table
from scoring.arrays import Array, Floats
from scoring.errors import InputError
from scoring.lookup import lookup

ANSWER = "answer"
COPIED = "as copies of other judged rows"
FEWEST_ROWS = 50
FEWEST_EACH = 5  # minimum of bad, and of good, rows: one per fold
FLAG = "--bad"
BAD, NEIGHBOUR = "bad", "neighbour"
TARGETS = {BAD: "the image is bad", NEIGHBOUR: "its nearest labelled neighbour is of another class"}
CLOSE = 1e-6  # tolerance for scores edited in a spreadsheet


@dataclass(frozen=True)
class JudgedImages:
    """M images and their verdicts.

    Attributes:
        keys: of the images, unique.
        badness: in [0, 1], shape (M,).
        weights: number of rows that each represents, shape (M,); all 1 if the sampling is unknown.
        values: score of each at the time of sampling, shape (M,); None if unknown.
        column: of the score; None if unknown.
        source: the files and their digests, as JSON values.
    """

    keys: list[str]
    badness: Floats
    weights: Floats
    values: Floats | None
    column: str | None
    source: dict[str, Any]


def read_answers(files: Sequence[str | Path], *, judges: str) -> JudgedImages:
    """Read verdicts.

    Args:
        files: verdicts on a sample of ``curate review plan`` or exports of Label Studio; or CSV, TSV, JSON lines or
            Parquet files with the columns ``key`` and ``answer`` (good, bad or unsure), one per judge.
        judges: how answers of several judges are combined, a name in ``JUDGES``.

    Raises:
        InputError: for a file, column, key or word that cannot be used, or files of both kinds.
    """
    lookup(JUDGES, judges, kind="way of joining judges")
    paths = [Path(file) for file in files]
    audits = [path.suffix == LABEL_STUDIO or is_audit(path) for path in paths]
    read = {"audit": {str(path.resolve()): judged_sha256(path) for path in paths if path.is_file()}, "judges": judges}
    if all(audits):
        return _audited_images(read_audit(paths, judges=judges), read)
    if any(audits):
        other = paths[audits.index(False)]
        raise InputError(
            f"expected audits of curate review plan alone, or none, got {paths[audits.index(True)]} and "
            f"{other}: they are different samples; pass one of them"
        )
    return _answered_images(paths, judges, read)


def _audited_images(verdicts: Verdicts, read: dict[str, Any]) -> JudgedImages:
    """Return verdicts, each weighted by the rows of its stratum over the number judged there.

    Zones are nested, so a sample of two zones draws the inner one twice as densely: strata lie between their ends.
    """
    ends = np.array([zone.among for zone in verdicts.zones], np.int64)
    ranks = np.array([verdict.rank for verdict in verdicts.judged], np.int64)
    stratum = np.searchsorted(ends, ranks)
    sizes = np.diff(ends, prepend=0)
    judged = np.bincount(stratum, minlength=len(ends))
    return JudgedImages(
        [verdict.key for verdict in verdicts.judged],
        verdicts.badness(),
        (sizes / np.maximum(judged, 1))[stratum],
        np.array([verdict.value for verdict in verdicts.judged], np.float64),
        verdicts.column,
        read,
    )


def _answered_images(paths: Sequence[Path], judges: str, read: dict[str, Any]) -> JudgedImages:
    answers_of: dict[str, list[str]] = {}
    for path in paths:
        known = read_known(path, ANSWER)
        if known.labels is None:
            raise InputError(f"{path} has no column {ANSWER!r}; expected good, bad or unsure there, one row per key")
        for key, answer in zip(known.keys, known.labels, strict=True):
            if answer is None:
                continue
            word = WORDS.get(answer.strip().casefold())
            name = key.decode("utf-8", "surrogateescape")
            if word is None:
                raise InputError(f"{path}: expected good, bad or unsure for {name[:80]!r}, got {answer[:40]!r}")
            answers_of.setdefault(name, []).append(word)
    if not answers_of:
        raise InputError(f"{paths[0]}: expected answers in the column {ANSWER!r}, got none; write good, bad or unsure")
    badness = np.array([joined(answers, judges) for answers in answers_of.values()], np.float64)
    return JudgedImages(list(answers_of), badness, np.ones(len(answers_of)), None, None, read)


@dataclass(frozen=True)
class ScoreColumn:
    """A column, and whether its high (1) or low (-1) values are uncertain."""

    column: str
    sign: int

    def doubt(self, values: Array) -> Floats:
        """Return values with the sign for which high is uncertain."""
        return self.sign * np.asarray(values, np.float64)


@dataclass(frozen=True)
class Truth:
    """Source of the outcomes; exactly one of the first three is set.

    Attributes:
        bad: condition that is true for bad rows, false for good ones, and null if unknown.
        audit: files of verdicts.
        label: column of classes, in ``labelled`` if given; a row is bad if its nearest neighbour has another class.
        labelled: file of keys and classes, or a folder of rounds.
        judges: how answers of several annotators are combined.
    """

    bad: str | None = None
    audit: tuple[str, ...] = ()
    label: str | None = None
    labelled: str | None = None
    judges: str = ANY

    def __post_init__(self) -> None:
        ways = {
            FLAG: self.bad is not None,
            "--audit": bool(self.audit),
            "--label": self.label is not None or self.labelled is not None,
        }
        chosen = [name for name, is_set in ways.items() if is_set]
        if len(chosen) != 1:
            got = " and ".join(chosen) or "none"
            raise InputError(
                f"expected one of --bad CONDITION, --audit FILE and --label COLUMN, which define what is bad, got {got}"
            )
        if self.judges != ANY and not self.audit:
            raise InputError("--judges needs --audit; leave it out")

    @property
    def target(self) -> str:
        """The event of the probability: a name in ``TARGETS``."""
        return NEIGHBOUR if self.label is not None or self.labelled is not None else BAD


@dataclass(frozen=True)
class JudgedRows:
    """M rows with a score and a known outcome, in the order of the hashes of their keys.

    Attributes:
        score: column and direction.
        values: scores, shape (M,).
        bad: in [0, 1], shape (M,).
        weights: relative number of rows that each represents, mean 1, shape (M,).
        hashes: of the keys, shape (M,).
        source: of the outcomes, as JSON values.
        digest: of the table's rows that were read.
        left_out: number of excluded rows by reason.
    """

    score: ScoreColumn
    values: Floats
    bad: Floats
    weights: Floats
    hashes: NDArray[np.uint64]
    source: dict[str, Any]
    digest: str
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Share of bad rows."""
        return float(self.weights @ self.bad / self.weights.sum())


def judged_rows(table: Table, column: str | None, truth: Truth) -> JudgedRows:
    """Return the rows of a table with a known outcome.

    Args:
        table: scored.
        column: of the score, or ``max:COLUMN`` if high values are certain and ``min:COLUMN`` if low values are; None
            for the sample's column, or the table's default.
        truth: source of the outcomes.

    Raises:
        InputError: for columns, keys or labels that cannot be used, or rows to which nothing can be fitted.
    """
    answers = read_answers(truth.audit, judges=truth.judges) if truth.audit else None
    score = _score(table, column, answers)
    if truth.target == NEIGHBOUR:
        judged = _by_neighbours(table, score, truth)
    elif answers is not None:
        judged = _by_answers(table, score, answers)
    else:
        judged = _by_condition(table, score, str(truth.bad))
    _check(judged)
    return judged


def score_of(text: str, table: Table) -> ScoreColumn:
    """Return column and direction as typed; a user column is certain where high; InputError if it is missing."""
    for prefix, sign in ((MAX, -1), (MIN, 1)):
        if text.startswith(prefix):
            table.require([text.removeprefix(prefix)])
            return ScoreColumn(text.removeprefix(prefix), sign)
    table.require([text])
    return ScoreColumn(text, 1 if describe(text).higher == "less certain" else -1)


def _score(table: Table, column: str | None, answers: JudgedImages | None) -> ScoreColumn:
    audited = answers.column if answers else None
    if column is None:
        return score_of(audited or default_column(table), table)
    score = score_of(column, table)
    if audited not in (None, score.column):
        raise InputError(f"--audit judges the column {audited}, and --column is {column}; leave --column out")
    return score


def _by_condition(table: Table, score: ScoreColumn, condition: str) -> JudgedRows:
    looks = columns_for_copies(table.schema.names)
    needs = Needs(numbers=(score.column,), conditions=((FLAG, condition),), representations=looks)
    rows = read_rows(table, needs, by_hash=True)
    truth = rows.truths[condition]
    known = (truth == TRUE) | (truth == FALSE)
    unknown = {f"of which {FLAG} has no value": int((~known & rows.ok).sum())}
    return _judged(rows, score, np.flatnonzero(known), (truth == TRUE).astype(np.float64), {"bad": condition}, unknown)


def _by_answers(table: Table, score: ScoreColumn, answers: JudgedImages) -> JudgedRows:
    needs = Needs(numbers=(score.column,), representations=columns_for_copies(table.schema.names))
    rows = read_rows(table, needs, by_hash=True)
    indices = rows.find(text_hashes(answers.keys))
    if (indices < 0).any():
        n, first = int((indices < 0).sum()), answers.keys[int((indices < 0).argmax())]
        raise InputError(
            f"--audit: {counted(n, 'judged key is', 'judged keys are')} not in {table.path}: {first[:80]!r}; "
            "pass the table that was judged"
        )
    if answers.values is not None:
        _refuse_changed(rows.numbers[score.column][indices], answers.values, answers.keys, score.column)
    bad, weights = np.zeros(len(rows)), np.ones(len(rows))
    bad[indices], weights[indices] = answers.badness, answers.weights
    return _judged(rows, score, np.sort(indices), bad, answers.source, {}, weights)


def _refuse_changed(values: Floats, then: Floats, keys: list[str], column: str) -> None:
    differs = ~np.isclose(values, then, rtol=CLOSE, atol=0)
    if differs.any():
        index = int(differs.argmax())
        raise InputError(
            f"--audit: {column} of {keys[index][:80]!r} was {then[index]:g} when it was drawn and is "
            f"{values[index]:g} now ({int(differs.sum()):,} of {len(values):,} differ); audit this table again"
        )


def _by_neighbours(table: Table, score: ScoreColumn, truth: Truth) -> JudgedRows:
    from curate.fitting.labels import label_source
    from curate.tables.dataset import read_dataset
    from curate.tables.vectors import rows_of
    from scoring.search.graph import knn_graph

    names = (truth.label,) if truth.label is not None and truth.labelled is None else ()
    dataset = read_dataset(table, names=names, numbers=(score.column,))
    source = label_source(dataset, table, truth.label, truth.labelled)
    labels = source.labels
    if labels is None:
        raise ValueError("labels were requested")
    vectors = rows_of(dataset.embeddings, labels.rows)
    nearest = knn_graph(vectors, 1).index[:, 0]  # beyond 50,000 rows about 99 % of them
    has_neighbour = nearest >= 0
    bad = np.zeros(len(dataset.rows))
    indices = dataset.first[labels.rows[has_neighbour]]
    bad[indices] = (labels.codes[nearest] != labels.codes)[has_neighbour]
    shown = int(dataset.copies.count[dataset.copies.unique][labels.rows].sum())
    without = {
        "without a class or an embedding": int(dataset.rows.ok.sum()) - shown,
        COPIED: shown - len(has_neighbour),
        **({} if has_neighbour.all() else {"without a neighbour": int((~has_neighbour).sum())}),
    }
    return _judged(dataset.rows, score, indices, bad, source.source, without)


def _judged(
    rows: Rows,
    score: ScoreColumn,
    indices: NDArray[np.int64],
    bad: Floats,
    source: dict[str, Any],
    left_out: dict[str, int],
    weights: Floats | None = None,
) -> JudgedRows:
    """Return rows ``indices``, ascending, without rows that have no score; copies of an image count once."""
    values = rows.numbers[score.column]
    has_score = rows.ok & np.isfinite(values)
    kept = indices[has_score[indices]]
    copies = find_copies(rows, kept)
    each = np.ones(len(kept)) if weights is None else weights[kept]
    weight, weight_bad, count = (np.bincount(copies.place, of) for of in (each, each * bad[kept], np.ones(len(kept))))
    once, of = kept[copies.unique], weight / count
    missing = {**left_out, f"without a finite {score.column}": len(indices) - len(kept)}
    missing[COPIED] = missing.get(COPIED, 0) + len(kept) - len(once)
    return JudgedRows(
        *(score, values[once], weight_bad / weight, of / of.mean() if len(of) else of),
        *(rows.hashes[once], source, rows.digest),
        {why: n for why, n in missing.items() if n > 0},
    )


def _check(judged: JudgedRows) -> None:
    """Raise ``InputError`` for rows on which no map can be fitted and evaluated."""
    n, bad = len(judged.values), int((judged.bad > 0).sum())
    good = int((judged.bad < 1).sum())
    out = "".join(f", {count:,} more {why}" for why, count in judged.left_out.items())
    if n < FEWEST_ROWS:
        raise InputError(f"expected at least {FEWEST_ROWS} judged rows, got {n:,}{out}; judge more")
    for what, count in (("bad", bad), ("good", good)):
        if count < FEWEST_EACH:
            raise InputError(
                f"expected at least {FEWEST_EACH} judged rows that are {what}, got {count:,} of {n:,}; judge more, or "
                "check which are bad"
            )
    if judged.values.min() == judged.values.max():
        raise InputError(
            f"{judged.score.column} is {judged.values[0]:g} on all {n:,} judged rows, so it separates "
            "nothing; choose another --column"
        )


def folds_of(judged: JudgedRows, folds: int, seed: int) -> NDArray[np.int64]:
    """Return the fold of each row, shape (M,): stratified by outcome, by a hash of its key."""
    order = np.lexsort((redrawn(judged.hashes, seed, "calibrate"), judged.bad))
    fold = np.empty(len(order), np.int64)
    fold[order] = np.arange(len(order)) % folds
    return fold
