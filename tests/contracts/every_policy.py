"""Every policy of the table, one from outside, and a small table that they decide on."""

import json
import os
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.policies.balance.policy import Balance
from curate.policies.contract import apply
from curate.policies.decided import DECISION_SCHEMA, DROP, FAILED, KEEP, OUTCOMES, Decided, Result
from curate.policies.dedup.policy import Dedup
from curate.policies.dedup.request import DedupRequest
from curate.policies.filter.amounts import KeepTop
from curate.policies.filter.named import Where
from curate.policies.filter.policy import Filter
from curate.policies.issues.policy import Issues
from curate.policies.labels.examine import LabelsRequest
from curate.policies.labels.policy import Labels
from curate.policies.outputs import Files
from curate.policies.select.policy import Select
from curate.policies.select.request import SelectRequest
from curate.policies.split.groups import SplitRequest
from curate.policies.split.policy import Split
from curate.tables.needs import Needs
from curate.tables.rows import read_rows
from curate.tables.table import embedding_field, open_table
from curate.tables.typed_json import from_json

N = 60
OWN = "every-nth"


@dataclass(frozen=True)
class EveryNth:
    """A policy that the package knows nothing of: it keeps one row in n, by the hash of its key."""

    n: int
    files: ClassVar[Files] = Files(texts={"note": "note.txt"})

    @classmethod
    def from_receipt(cls, rules):
        return from_json(cls, rules[0], what="the rule of the receipt", ignored=("rule",))

    def decide(self, table):
        rows = read_rows(table, Needs())
        outcome = np.where(rows.ok, np.where(rows.hashes % self.n == 0, KEEP, DROP), FAILED).astype(np.uint8)

        def words(start, keys, status, error):
            names = pa.array(OUTCOMES).take(pa.array(outcome[start : start + len(keys)]))
            none = pa.nulls(len(keys), pa.float64())
            return pa.RecordBatch.from_arrays([keys, names, names, names, none, none, none], schema=DECISION_SCHEMA)

        return Decided(
            table=table,
            policy=[{"rule": OWN, "n": self.n}],
            outcome=outcome,
            hashes=rows.hashes,
            digest=rows.digest,
            words=words,
            schema=DECISION_SCHEMA,
            meanings={},
            result=OwnResult(dropped_by={"others": int((outcome == DROP).sum())}),
            texts=lambda paths: {"note": f"next to {paths['note'].name}".encode()},
        )


@dataclass(frozen=True)
class OwnResult(Result):
    note: os.PathLike | None = None

    FILES: ClassVar = (*Result.FILES, "note")


ASKED = {
    "filter": Filter((Where("width >= 13"), KeepTop("50%", "kappa_a", "label"))),
    "dedup": Dedup(DedupRequest({"bytes": 1.0}, protect="width == 20", label="label")),
    "select": Select(SelectRequest("score", "7", score="unc_b", labelled_where="width < 12")),
    "balance": Balance("label", rows="50%", within="certain", column="unc_b"),
    "split": Split(SplitRequest({"train": "70%", "rest": "0.3"}, ("label",), thresholds={"bytes": 1.0})),
    "issues": Issues(only=("dark",)),
    "labels": Labels(LabelsRequest(("label",), drop=True, below=0.3)),
    OWN: EveryNth(3),
}


def columns_of(n=N, **changed):
    """Rows of every kind: failed, without a value, equal to others, tied."""
    values = {
        "key": pa.array([f"img/{i:03}.jpg" for i in range(n)]),
        "label": pa.array([("cat", "dog", None)[i % 3] for i in range(n)]),
        "width": pa.array([10 + i % 17 for i in range(n)], pa.int32()),
        "status": pa.array(["truncated" if i % 20 == 7 else "ok" for i in range(n)]),
        "error": pa.array(["cut short" if i % 20 == 7 else None for i in range(n)]),
        "sha256": pa.array([f"s{i % 23}" for i in range(n)]),
        "quality_highlight": pa.array([None if i % 30 == 11 else i % 8 / 8 for i in range(n)], pa.float32()),
        "kappa_a": pa.array([None if i % 30 == 4 else i * 7 % 5 for i in range(n)], pa.float32()),
        "unc_b": pa.array([None if i % 30 == 9 else i % 4 for i in range(n)], pa.float32()),
    }
    vectors = pa.array(np.arange(3 * n, dtype=np.float16))
    values["embedding"] = pa.FixedSizeListArray.from_arrays(vectors, type=embedding_field(3).type)
    return {**values, **changed}


def write(path, table):
    card = {b"curate": json.dumps({"kind": "scores", "model": {"name": "m", "digest": "d"}}).encode()}
    pq.write_table((pa.table(table) if isinstance(table, dict) else table).replace_schema_metadata(card), path)
    return path


def run(policy, path, out=None, **how):
    return apply(policy, open_table(path, require=["key"]), out, **how)


def written(result):
    return {name: path for name, path in result.paths().items() if path is not None}


def decided(path):
    table = pq.read_table(path)
    return dict(zip(table["key"].to_pylist(), table["decision"].to_pylist(), strict=True))


def keys_of(path):
    return pq.read_table(path)["key"].to_pylist()
