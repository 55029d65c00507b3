"""Sampling of labels for review, stratified by quality, and estimates from the verdicts."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.quality.audit import allocate
from curate.policies.labels.examine import Examined
from curate.policies.sampled import Share, drawn_rows, is_drawn, n_finished, number_in, refuse_unfinished, verdicts_on
from curate.policies.verdicts import DROP, KEEP, RELABEL, Line
from curate.tables.digests import salted
from curate.tables.keys import keys_at
from scoring.errors import InputError
from scoring.metrics.proportions import Stratum, stratified_interval

COLUMNS = ("row", "key", "given", "suggested", "quality", "stratum", "size")
SUSPECTED, TRUSTED = "suspected", "trusted"
PARTS = 4  # strata on each side, of equal size
FEWEST, MOST = 10, 1000  # bounds of the sample size: some of every stratum, at most what a page can show
LABELLED, SUGGESTED, OTHER, UNSURE = "given", "suggested", "other", "unsure"
WRONG = (SUGGESTED, OTHER)


@dataclass(frozen=True)
class Drawn:
    """A sampled row: its position in the sample, and its stratum."""

    place: str
    key: str
    label: str
    suggested: str
    quality: float
    stratum: str
    size: int


def draw_rows(examined: Examined, n: int) -> list[Drawn]:
    """Sample rows with a known label quality from every stratum: half by size and half evenly.

    Strata are quarters by quality of the suspected and of the other rows. Within a stratum the sample is simple random,
    by a hash of key and seed. The order is random.

    Raises:
        InputError: if ``n`` is out of range, or no label was judged.
    """
    if not FEWEST <= n <= MOST:
        raise InputError(f"--review draws {FEWEST} to {MOST:,} rows, got {n:,}; 200 is usual")
    judged = ~np.isnan(examined.quality)
    if not judged.any():
        raise InputError("--review: expected labels that could be judged, got none; leave it out")
    suspected = examined.suspected
    strata: list[tuple[str, NDArray[np.int64]]] = []
    for side, inside in ((SUSPECTED, judged & suspected), (TRUSTED, judged & ~suspected)):
        rows = np.flatnonzero(inside)
        rows = rows[np.lexsort((examined.hashes[rows], examined.quality[rows]))]
        strata += [(f"{side} {i}", part) for i, part in enumerate(np.array_split(rows, PARTS), 1) if len(part)]
    ties = salted(examined.hashes, examined.request.seed)
    chosen: list[tuple[int, str, int]] = []
    for (name, rows), count in zip(strata, allocate([len(rows) for _, rows in strata], n), strict=True):
        first = rows[np.argsort(ties[rows], kind="stable")[:count]]
        chosen += [(row, name, len(rows)) for row in first.tolist()]
    chosen.sort(key=lambda chosen_row: hashlib.blake2b(ties[chosen_row[0]].tobytes()).digest())
    at = np.array([row for row, _, _ in chosen])
    keys = keys_at(examined.table, at)
    better = np.where(suspected & (examined.suggested != examined.labels), examined.suggested, examined.rival)[at]
    return [
        Drawn(
            f"{number} of {len(chosen)}",
            str(key),
            examined.classes[examined.labels[row]],
            examined.classes[other],
            float(examined.quality[row]),
            name,
            size,
        )
        for number, ((row, name, size), key, other) in enumerate(zip(chosen, keys, better.tolist(), strict=True), 1)
    ]


@dataclass(frozen=True)
class Verdicts:
    """The results of verdicts; a strict reading counts an unsure label as right.

    Attributes:
        counts: answer -> rows; ``blank`` rows count as not drawn.
        wrong: share of all judged labels that are wrong.
        suspected: the same for suspected labels; None if none was drawn.
        trusted: the same for the other labels; None if none was drawn.
        corrected: share of the suspected rows whose suggested label is right; None if none was drawn.
    """

    counts: dict[str, int]
    wrong: Share
    suspected: Share | None
    trusted: Share | None
    corrected: Share | None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        shares = {name: value and value.to_json("rows") for name, value in vars(self).items() if name != "counts"}
        return {"counts": self.counts, **shares}


def is_review(path: Path) -> bool:
    """Return whether ``curate labels --review`` wrote a file."""
    return is_drawn(path, ["given", "suggested"])


def read_verdicts(path: str | Path) -> Verdicts:
    """Return shares of wrong labels, with each verdict weighted by the number of labels that it represents.

    The intervals hold for every population: see ``scoring.metrics.proportions``. Rows after the last completely judged
    block count as not drawn; if reviewers differ, a label is unsure.

    Args:
        path: NAME.review.csv, as drawn; the verdicts are next to it.

    Raises:
        InputError: for an unreadable file, a missing or malformed column or row, or no verdict.
    """
    path = Path(path)
    answers: dict[str, tuple[int, list[str | None]]] = {}
    drawn, verdicts = read_rows(path), verdicts_on(path)
    is_judged = [(row.key, "") in verdicts for row in drawn]
    n = n_finished([row.key for row in drawn], is_judged)
    if not n:
        refuse_unfinished(path, len(drawn), sum(is_judged), "labels")
    for at, row in enumerate(drawn):
        lines = verdicts.get((row.key, ""), {}).values() if at < n else ()
        answered = {_answer(line, row.suggested) for line in lines}
        answer = None if not answered else answered.pop() if len(answered) == 1 else UNSURE
        answers.setdefault(row.stratum, (row.size, []))[1].append(answer)
    every = [answer for _, each in answers.values() for answer in each]
    counts = {word: every.count(word) for word in (LABELLED, SUGGESTED, OTHER, UNSURE)} | {"blank": every.count(None)}
    suspected = {name: each for name, each in answers.items() if name.startswith(SUSPECTED)}
    trusted = {name: each for name, each in answers.items() if name.startswith(TRUSTED)}
    return Verdicts(
        counts,
        _share(answers, WRONG),
        _share(suspected, WRONG) if suspected else None,
        _share(trusted, WRONG) if trusted else None,
        _share(suspected, (SUGGESTED,)) if suspected else None,
    )


def _answer(line: Line, suggested: str) -> str:
    """Return the class of a verdict on a label: its own, the suggested, another, or unclear."""
    if line.verdict == RELABEL:
        return SUGGESTED if line.label == suggested else OTHER
    return {KEEP: LABELLED, DROP: OTHER}.get(line.verdict, UNSURE)


def read_rows(path: str | Path) -> list[Drawn]:
    """Return the drawn rows in order; InputError for an unreadable file, or a malformed column or row."""
    path = Path(path)
    rows = drawn_rows(path, COLUMNS, "NAME.review.csv of curate labels --review", _parsed, most=MOST)
    sizes: dict[str, int] = {}
    for row in rows:
        if sizes.setdefault(row.stratum, row.size) != row.size:
            raise InputError(f"{path}: stratum {row.stratum!r} has two sizes; draw the review again")
    return rows


def _parsed(cells: dict[str, str]) -> Drawn:
    stratum, quality, size = cells["stratum"].strip(), number_in(cells, "quality"), number_in(cells, "size")
    if not stratum.startswith((SUSPECTED, TRUSTED)):
        raise ValueError(f"expected a stratum such as '{SUSPECTED} 1', got {stratum!r}")
    if size < 1:
        raise ValueError(f"expected a size of 1 or more, got {size:g}")
    return Drawn(cells["row"], cells["key"], cells["given"], cells["suggested"], quality, stratum, int(size))


def _share(answers: dict[str, tuple[int, list[str | None]]], positive: tuple[str, ...]) -> Share:
    readings = []
    for counted_in in (positive, (*positive, UNSURE)):
        strata = [
            Stratum(
                size,
                sum(answer is not None for answer in row_answers),
                sum(answer in counted_in for answer in row_answers),
            )
            for size, row_answers in answers.values()
        ]
        readings.append(stratified_interval(strata))
    return Share(sum(size for size, _ in answers.values()), *readings)
