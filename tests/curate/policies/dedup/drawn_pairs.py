"""Pairs to draw an audit from, and answers to it."""

import csv
import io

import numpy as np
import pyarrow as pa
from sample_verdicts import judge

from curate.policies.dedup.quality.answers import read_answers
from curate.policies.dedup.quality.audit import COLUMNS, audit_text

LIMITS = {"signature": 0.9, "hash": 2}


def pairs_of(similarity, finder="signature"):
    n = len(similarity)
    return pa.table(
        {
            "key_a": [f"{finder}/a{i}.jpg" for i in range(n)],
            "key_b": [f"{finder}/b{i}, or so.jpg" for i in range(n)],
            "similarity": pa.array(np.asarray(similarity)),
            "finder": [finder] * n,
        }
    )


VERDICTS = {"y": "drop", "n": "keep", "?": "unsure", "": ""}


def drawn_lines(drawn, path):
    """Write an audit, and return its lines."""
    path.write_bytes(audit_text(drawn))
    return lines_of(path)


def answered(drawn, path, say, **reviewer):
    """Write an audit and judge it: ``say`` gives the answer to a pair."""
    path.write_bytes(audit_text(drawn))
    judge(path, [(VERDICTS[say(pair)], pair.key_b, pair.key_a, "") for pair in drawn], question="copy", **reviewer)
    return read_answers(path)


def save(rows, path, delimiter=",", encoding="utf-8", columns=COLUMNS):
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, delimiter=delimiter, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding=encoding)


def lines_of(path):
    return list(csv.DictReader(io.StringIO(path.read_text())))
