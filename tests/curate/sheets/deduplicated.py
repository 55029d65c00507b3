"""What a deduplication leaves behind, made by hand, and names that try to be more than names."""

import math

import pyarrow as pa
import pyarrow.parquet as pq

from curate.policies.dedup.grouping.members import SCHEMA as GROUPS
from curate.policies.dedup.words import SCHEMA as DECISIONS
from curate.tables.table import open_table

HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "two\nlines\r\nand\ttab",
    "long/" + "x" * 5000 + ".png",
    "\u202egnp.elif",
    "\u05e9\u05dc\u05d5\u05dd/\u0645\u0631\u062d\u0628\u0627.png",
    "</title></style>&amp;&lt;",
    "javascript:alert(1)",
    "nul\x00key\x1b[31m",
]


def kept(key, group):
    return {"key": key, "decision": "keep", "reason": "the best of its group", "group": group, "kept_key": key}


def dropped(key, kept_key, group, similarity, threshold=0.9, reason="mirrored"):
    return {
        "key": key,
        "decision": "drop",
        "reason": f"the same as {kept_key!r}: {reason}",
        "score": similarity,
        "threshold": threshold,
        "margin": None if similarity is None else (similarity - threshold) * (1 if threshold <= 1 else -1),
        "group": group,
        "kept_key": kept_key,
    }


def alone(key):
    return {"key": key, "decision": "keep", "reason": "like no other"}


def slow_doubt(similarity, threshold):
    """Thresholds up to 1 are cosines, larger ones are bits."""
    if similarity is None:
        return math.inf
    if similarity == threshold == 1:
        return 1.0
    return (similarity - threshold) / (1 - threshold) if threshold <= 1 else (threshold - similarity) / threshold


def fact(group, kept_key, size, smallest, *, finders=("cosine",), labels=("cat",), conflict=False, margin=0.5):
    return {
        "group": group,
        "kept_key": kept_key,
        "other_table": False,
        "size": size,
        "measure": "signature",
        "margin": margin,
        "smallest_similarity": smallest,
        "finders": list(finders),
        "labels": list(labels),
        "conflict": conflict,
    }


def write(folder, decisions, groups=None):
    """The two outputs of a run; the table of groups is derived from the decisions where it is not given."""
    if groups is None:
        members = {}
        for row in decisions:
            if row.get("group") is not None:
                members.setdefault(row["group"], []).append(row)
        groups = [
            fact(
                name,
                next((row["kept_key"] for row in rows if row["kept_key"]), None),
                len(rows),
                min(row.get("score") or 1 for row in rows),
                margin=min(slow_doubt(row.get("score"), row.get("threshold")) for row in rows),
            )
            for name, rows in members.items()
        ]
    pq.write_table(pa.Table.from_pylist(decisions, DECISIONS), folder / "k.decisions.parquet")
    pq.write_table(pa.Table.from_pylist(groups, GROUPS), folder / "k.groups.parquet")
    return open_table(folder / "k.decisions.parquet"), open_table(folder / "k.groups.parquet")
