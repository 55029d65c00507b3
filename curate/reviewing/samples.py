"""Review of a random sample: the question about each image, without a hint of the expected answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curate.policies.audit.verdicts import is_audit, read_plan
from curate.policies.dedup.quality.answers import read_pairs, shown
from curate.policies.labels.review import is_review, read_rows
from curate.policies.sampled import ENDING, blocks
from curate.policies.verdicts import COPY, IMAGE, LABELS
from curate.reporting.columns import Dataset
from curate.reviewing.queue import Group, id_of
from curate.tables.digests import text_hashes
from scoring.errors import InputError

SAMPLE = "sample"  # the kind of a group of drawn images


@dataclass(frozen=True)
class Drawn:
    """A sampled image.

    Attributes:
        key: its key.
        beside: key of the image to compare it with; empty for none.
        label: its label and the suggested label; empty if the question is not about labels.
    """

    key: str
    beside: str = ""
    label: tuple[str, str] = ("", "")


def is_sample(path: object) -> bool:
    """Return whether a path is the file of a sample."""
    return str(path).endswith(ENDING)


def sample_groups(path: Path, dataset: Dataset) -> list[Group]:
    """Return a sample in groups to judge, in the order drawn; InputError if it is no sample of the table.

    Args:
        path: NAME.audit.csv of ``curate review plan`` or ``curate dedup``, or NAME.review.csv of ``curate labels``.
        dataset: the sampled table.
    """
    drawn, question, words = _read(path)
    rows = _rows(path, dataset, [row.key for row in drawn])
    beside = _rows(path, dataset, [row.beside for row in drawn]) if question == COPY else np.zeros(0, np.int64)
    groups = []
    for chunk in blocks(rows.tolist()):
        for label in dict.fromkeys(drawn[at].label for at in chunk):
            places = [at for at in chunk if drawn[at].label == label]
            made = id_of(SAMPLE, (f"{drawn[at].key}\0{drawn[at].beside}" for at in places))
            title = words.format(*label)
            others = beside[places] if len(beside) else beside
            texts, weights = [""] * len(places), np.zeros(len(places))
            groups.append(Group(made, SAMPLE, title, question, rows[places], texts, others, label[1], weights))
    return groups


def _read(path: Path) -> tuple[list[Drawn], str, str]:
    """Return the sample, the question, and its text."""
    if is_review(path):
        named = [Drawn(row.key, label=(row.label, row.suggested)) for row in read_rows(path)]
        return named, LABELS, "labelled {}, or is it {}?"
    if is_audit(path):
        plan = read_plan(path)
        words = "is the label right?" if plan.labelled else "good or bad?"
        return [Drawn(row.key) for row in plan.rows], IMAGE, words
    return [Drawn(*shown(pair)) for pair in read_pairs(path)], COPY, "the same image, or two?"


def _rows(path: Path, dataset: Dataset, keys: Sequence[str]) -> np.ndarray:
    """Return the row of each key; InputError if one is missing."""
    rows = dataset.find(text_hashes(keys))
    gone = np.flatnonzero(rows < 0)
    if len(gone):
        raise InputError(
            f"{path} belongs to another table: {dataset.table.path} has no image {keys[gone[0]][:80]!r}; pass "
            "the table it was drawn from"
        )
    return rows
