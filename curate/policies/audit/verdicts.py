"""Verdicts of an audit: reading, and combining over reviewers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from curate.exporting.labels import ExpectedRows
from curate.manifest.store_path import path_on_disk
from curate.policies.audit.results import ANY, COLUMNS, JUDGES, MAJORITY, MOST, SHARE
from curate.policies.sampled import drawn_rows, is_drawn, n_finished, number_in, refuse_unfinished, verdicts_on
from curate.policies.verdicts import DROP, KEEP, RELABEL
from curate.policies.verdicts import UNSURE as NOT_SURE
from scoring.errors import InputError
from scoring.lookup import lookup

GOOD, BAD, UNSURE = "good", "bad", "unsure"
WORDS: dict[str, str] = {
    **dict.fromkeys((GOOD, "g", "ok", "keep"), GOOD),
    **dict.fromkeys((BAD, "b", "drop"), BAD),
    **dict.fromkeys((UNSURE, "u", "?"), UNSURE),
}
OF_VERDICT = {KEEP: GOOD, DROP: BAD, RELABEL: BAD, NOT_SURE: UNSURE}
LABEL_STUDIO = ".json"
MOST_FILES = 100


@dataclass(frozen=True)
class Zone:
    """The rows that a sample was drawn from: the ``among`` most certain, down to score ``cut``."""

    among: int
    cut: float


@dataclass(frozen=True)
class Judged:
    """A sampled row and its verdicts.

    Attributes:
        key: of the row.
        value: its score when drawn.
        rank: its rank when drawn, from 1 for the most certain.
        answers: of all reviewers: good, bad or unsure.
        badness: of all answers together, 0 for good to 1 for bad; NaN until combined.
    """

    key: str
    value: float
    rank: int
    answers: list[str]
    badness: float = math.nan


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on random samples of the rows that could be kept.

    Attributes:
        files: the files read.
        column: the score.
        zones: populations of the samples, strictest first.
        judged: rows with an answer, in the order of the files.
        blank: number of drawn rows without an answer, or after the last completely judged block.
        judges: how several answers were combined.
    """

    files: tuple[str, ...]
    column: str
    zones: tuple[Zone, ...]
    judged: tuple[Judged, ...]
    blank: int
    judges: str

    def counts(self) -> dict[str, int]:
        """Return rows by verdict: good, bad, between (reviewers disagree or are unsure) and blank."""
        answers = [set(row.answers) for row in self.judged]
        good, bad = answers.count({GOOD}), answers.count({BAD})
        return {GOOD: good, BAD: bad, "between": len(answers) - good - bad, "blank": self.blank}

    def badness(self) -> np.ndarray:
        """Return the badness of each judged row, shape (n,), in [0, 1]."""
        return np.array([row.badness for row in self.judged], np.float64)


@dataclass(frozen=True)
class Plan:
    """A sample: its population and rows, whether labels are judged, and the number of ignored verdicts."""

    zone: Zone
    column: str
    rows: list[Judged]
    labelled: bool
    unfinished: int = 0


def read_audit(files: Sequence[str | Path], *, judges: str = ANY) -> Verdicts:
    """Read the verdicts on sampled rows.

    Each file is a NAME.audit.csv of ``curate review plan``, with the verdicts of ``curate review`` next to it. Verdicts
    of several reviewers, or in copies of a file, are combined; files drawn with other seeds or from other zones add to
    the sample. A ``.json`` file is an export of Label Studio, with choices good, bad and unsure, for rows of the CSV
    files next to it. An unsure verdict counts as bad. A row without a verdict, or after the last completely judged
    block, counts as not drawn.

    Args:
        files: at least one CSV.
        judges: how several answers are combined, a name in ``JUDGES``.

    Raises:
        InputError: for a missing or malformed file, column or line, a key with two verdicts in a file, files of
            different tables or columns, or no verdict.
    """
    lookup(JUDGES, judges, kind="way of joining judges")
    paths = [path_on_disk(file, "--audit") for file in files]
    if not 1 <= len(paths) <= MOST_FILES:
        raise InputError(f"--audit takes 1 to {MOST_FILES} files, got {len(paths)}")
    plans = [read_plan(path) for path in paths if path.suffix != LABEL_STUDIO]
    if not plans:
        raise InputError(f"{paths[0]} does not list the sample; also pass the NAME.audit.csv of curate review plan")
    columns = list(dict.fromkeys(plan.column for plan in plans))
    if len(columns) > 1:
        raise InputError(f"expected audits of one column, got {columns[0]} and {columns[1]}; pass audits of one")
    rows: dict[str, Judged] = {}
    unfinished = sum(plan.unfinished for plan in plans)
    for plan in plans:
        for row in plan.rows:
            known = rows.setdefault(row.key, Judged(row.key, row.value, row.rank, []))
            if known.value != row.value:
                raise InputError(
                    f"the audits hold two scores of {row.key!r}, {known.value:g} and {row.value:g}; pass "
                    "audits of one table"
                )
            known.answers.extend(row.answers)
    for path in paths:
        if path.suffix == LABEL_STUDIO:
            _add_label_studio(path, rows)
    judged = [replace(row, badness=joined(row.answers, judges)) for row in rows.values() if row.answers]
    if not judged:
        refuse_unfinished(paths[0], len(rows), unfinished, "images")
    zones = tuple(sorted({plan.zone for plan in plans}, key=lambda zone: zone.among))
    return Verdicts(tuple(map(str, paths)), columns[0], zones, tuple(judged), len(rows) - len(judged), judges)


def is_audit(path: str | Path) -> bool:
    """Return whether ``curate review plan`` wrote a file."""
    return is_drawn(Path(path), ["among"])


def joined(answers: Sequence[str], judges: str) -> float:
    """Return the badness of a row from the verdicts of several reviewers, in [0, 1]; unsure counts as bad."""
    share = sum(answer != GOOD for answer in answers) / len(answers)
    if judges == SHARE:
        return share
    return float(share >= 1 / 2) if judges == MAJORITY else float(share > 0)


def read_plan(path: Path) -> Plan:
    """Return a sample with its verdicts; InputError for a missing or malformed file, column or line."""
    lines = drawn_rows(path, COLUMNS, "NAME.audit.csv of curate review plan", _parsed, most=MOST)
    rows = [row for row, _, _ in lines]
    heads = {head for _, head, _ in lines}
    if len(heads) != 1 or len({row.key for row in rows}) < len(rows):
        raise InputError(f"{path}: expected each key once and one population, got more; pass one file as it was drawn")
    among, cut, column = heads.pop()
    plan = Plan(Zone(among, cut), column, rows, any(is_labelled for _, _, is_labelled in lines))
    verdicts = verdicts_on(path)
    for row in plan.rows:
        row.answers.extend(OF_VERDICT[line.verdict] for line in verdicts.get((row.key, ""), {}).values())
    is_judged = [bool(row.answers) for row in plan.rows]
    n = n_finished([row.key for row in plan.rows], is_judged)
    for row in plan.rows[n:]:
        row.answers.clear()
    return replace(plan, unfinished=sum(is_judged[n:]))


def _parsed(cells: dict[str, str]) -> tuple[Judged, tuple[int, float, str], bool]:
    """Return a row, the population it was drawn from, and whether labels are judged."""
    value, cut, column = number_in(cells, "value"), number_in(cells, "cut"), cells["column"].strip()
    rank, among = int(number_in(cells, "rank")), int(number_in(cells, "among"))
    if not 1 <= rank <= among:
        raise ValueError(f"expected a rank from 1 to {among:,}, got {rank:,}")
    if not column:
        raise ValueError("expected the name of a score in column 'column', got none")
    return Judged(cells["key"], value, rank, []), (among, cut, column), bool(cells["label"])


def _add_label_studio(path: Path, rows: dict[str, Judged]) -> None:
    """Add the annotators' choices to the sampled rows."""
    from curate.exporting.label_studio import read

    export = read(path, ExpectedRows.of(list(rows), (GOOD, BAD, UNSURE)))
    if not export.rows:
        problems = "; ".join(map(str, export.problems[:3]))
        raise InputError(f"{path} has no usable verdict{f' ({problems})' if problems else ''}; choices are good, bad")
    for label in export.rows:
        rows[label.key].answers.append(label.label)
