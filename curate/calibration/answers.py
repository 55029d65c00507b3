"""Verdicts on images: of an audit, with its sampling weights, or a file of keys and answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.policies.audit.request import JUDGES
from curate.policies.audit.verdicts import LABEL_STUDIO, WORDS, Verdicts, is_audit, joined, read_audit
from curate.policies.sampled import judged_sha256
from curate.tables.known import read_known
from scoring.errors import InputError
from scoring.lookup import lookup

ANSWER = "answer"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class JudgedImages:
    """M images and their verdicts.

    Attributes:
        keys: each once.
        badness: in [0, 1], shape (M,).
        weights: rows that each represents, shape (M,); all 1 where nothing says how they were drawn.
        values: the score of each when it was drawn, shape (M,); None where nothing says it.
        column: of the score; None where nothing says it.
        source: the files and their digests, as plain JSON.
    """

    keys: list[str]
    badness: Floats
    weights: Floats
    values: Floats | None
    column: str | None
    source: dict[str, Any]


def read_answers(files: Sequence[str | Path], *, judges: str) -> JudgedImages:
    """Read the verdicts.

    Args:
        files: of ``curate review plan``, with their verdicts or exports of Label Studio; or CSV, TSV, JSON lines or
            Parquet files with the columns ``key`` and ``answer`` (good, bad or unsure), one a judge.
        judges: how several answers are joined, a name in ``JUDGES``.

    Raises:
        InputError: for a file, column, key or word that cannot be used, or files of both kinds.
    """
    lookup(JUDGES, judges, kind="way of joining judges")
    paths = [Path(file) for file in files]
    audits = [path.suffix == LABEL_STUDIO or is_audit(path) for path in paths]
    read = {"audit": {str(path.resolve()): judged_sha256(path) for path in paths if path.is_file()}, "judges": judges}
    if all(audits):
        return _of_audit(read_audit(paths, judges=judges), read)
    if any(audits):
        other = paths[audits.index(False)]
        raise InputError(
            f"expected audits of curate review plan alone, or none, got {paths[audits.index(True)]} and "
            f"{other}: they are different samples; pass one of them"
        )
    return _of_files(paths, judges, read)


def _of_audit(verdicts: Verdicts, read: dict[str, Any]) -> JudgedImages:
    """Return verdicts, each weighted by the rows of its stratum over the number judged there.

    Zones are in one another, so an audit of two draws the inner one twice as thickly: strata are what lies between
    their ends.
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


def _of_files(paths: Sequence[Path], judges: str, read: dict[str, Any]) -> JudgedImages:
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
