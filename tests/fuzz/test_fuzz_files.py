"""Files that annotators hand in, broken: tables of labels, answers, receipts, models, pipelines."""

import io
import json
import os
import struct
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzzing import NASTY, broken_bytes, broken_json, fuzz, survives, values
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.journal import append_line, journal_lines
from curate.exporting import coco, csv_file, label_studio
from curate.exporting.labels import ExpectedRows
from curate.manifest.places import find_place
from curate.manifest.sources import open_manifest
from curate.manifest.tar_index import Contents, members
from curate.pipeline.file import read_pipeline
from curate.policies.balance.amounts import target_of
from curate.policies.dedup.quality.answers import read_answers
from curate.policies.labels.review import read_verdicts
from curate.policies.receipts import lost_rows, read_receipt
from curate.reporting.measured import read_measured
from curate.rounds.files.sealed import read_sealed
from curate.rounds.simulation.plot import read_replay
from curate.tables.known import read_known, read_votes
from curate.tables.table import METADATA_KEY, open_table
from curate.tables.typed_json import from_json
from scoring.cards import read_header
from trainers.cache import ABOUT, read_about

ROWS = ExpectedRows.of({"a.jpg": "/x/a.jpg", "b": None, "=c": "/x/c"}, ["cat", "dog"])
CSV = b'key,label,annotator,at\r\na.jpg,cat,ann,2024-01-01\r\nb,dog,bob,\r\n"\'=c",cat,ann,2024-01-02T00:00:00Z\r\n'
TASKS = [
    {
        "id": 1,
        "data": {"image": "/data/local-files/?d=a.jpg", "key": "a.jpg"},
        "annotations": [
            {"completed_by": 1, "result": [{"from_name": "l", "type": "choices", "value": {"choices": ["cat"]}}]}
        ],
    }
]
COCO = {
    "images": [{"id": 1, "file_name": "a.jpg", "key": "a.jpg", "width": 3, "height": 4}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 2}],
    "categories": [{"id": 2, "name": "cat"}],
}
MEASURED = {
    "rows": 10,
    "used": 9,
    "columns": ["unc_a"],
    "measures": [
        {
            "name": "auroc",
            "better": "higher",
            "meaning": "m",
            "values": {"unc_a": {"value": 0.5, "low": 0.4, "high": 0.6}},
        }
    ],
}
RECEIPT = {
    "kind": "receipt",
    "input": {"path": "/x/t.parquet", "digest": "00", "files": ["t.parquet"], "n_rows": 3},
    "policy": [{"rule": "max", "column": "unc_a", "value": 1.0}],
    "counts": {"n_rows": 3, "kept": 1, "dropped": 2, "undecided": 0, "failed": 0},
    "dropped_by": {"--max 1": 2},
    "outputs": {name: {"file": f"{name}.parquet", "sha256": "00"} for name in ("subset", "decisions")},
}
TOML = b'folder = "out"\n[dedup]\nsource = "s.parquet"\nmirrored = true\n[best]\nrun = "filter"\nkeep_top = "80%"\n'
AUDIT = (
    b"pair,key_a,key_b,similarity,stratum,weight\n"
    b'1 of 2,a,b,0.97,"signature: dropped 1, 0.95 to 0.99",1.0\n'
    b'2 of 2,\'=c,d,0.91,"signature: near 1, 0.9 to 0.95",3.5\n'
)
REVIEW = (
    b"row,key,given,suggested,quality,stratum,size\n"
    b"1 of 2,a,cat,dog,0.2,suspected 1,4\n2 of 2,b,dog,cat,0.9,trusted 1,9\n"
)


def with_file(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzzed")


@fuzz(250)
@given(data=broken_bytes(CSV), suffix=st.sampled_from([".csv", ".tsv"]))
def test_tables_of_labels(folder, data, suffix):
    path = with_file(folder, f"labels{suffix}", data)
    survives(read_known, path)
    survives(read_votes, path)
    survives(csv_file.read, path, ROWS)


@fuzz(100)
@given(data=broken_bytes(b'{"key": "a.jpg", "label": "cat"}\n{"key": "b", "label": null, "n": [1, {"a": 2}]}\n'))
def test_lines_of_json(folder, data):
    survives(read_known, with_file(folder, "labels.jsonl", data))


@fuzz(150)
@given(tasks=broken_json(TASKS), whole=broken_json(COCO))
def test_labels_of_annotation_tools(folder, tasks, whole):
    survives(label_studio.read, with_file(folder, "tasks.json", tasks), ROWS)
    survives(coco.read, with_file(folder, "coco.json", whole), ROWS)


@fuzz(150)
@given(audit=broken_bytes(AUDIT), review=broken_bytes(REVIEW))
def test_verdicts_of_annotators(folder, audit, review):
    survives(read_answers, with_file(folder, "a.audit.csv", audit))
    survives(read_verdicts, with_file(folder, "a.review.csv", review))


@fuzz(150)
@given(
    receipt=broken_json(RECEIPT), measured=broken_json(MEASURED), other=broken_json({"kind": "replay", "curves": {}})
)
def test_json_of_our_own(folder, receipt, measured, other):
    survives(lambda path: list(lost_rows(read_receipt(path))), with_file(folder, "r.receipt.json", receipt))
    survives(read_measured, with_file(folder, "m.json", measured))
    survives(read_replay, with_file(folder, "replay.json", other))
    survives(read_sealed, with_file(folder, "round.json", other), "replay")
    survives(read_about, with_file(folder, ABOUT, other).parent)


@fuzz(150)
@given(
    data=broken_bytes(TOML)
    | st.sampled_from([b"a = " + b"[" * 50_000, b"[a]\nb=" + b"9" * 5000, b"[" + b"a." * 9000 + b"a]"])
)
def test_pipelines(folder, data):
    survives(read_pipeline, with_file(folder, "curate.toml", data))


@fuzz(100)
@given(data=broken_json({"cat": 0.25, "dog": "75%"}), sheet=broken_bytes(b"class,share\ncat,0.25\ndog,75%\n"))
def test_shares(folder, data, sheet):
    survives(target_of, str(with_file(folder, "shares.json", data)), None)
    survives(target_of, str(with_file(folder, "shares.csv", sheet)), None)


def tar_of(files):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


TAR = tar_of(
    {
        "a.jpg": b"x" * 600,
        "a.cls": b"3",
        "a.json": b'{"n": 1, "t": "x"}',
        f"{'d' * 120}/\u00e9.png": b"y",
        "a.txt": b"words",
    }
)


@fuzz(200)
@given(data=broken_bytes(TAR))
def test_tars(folder, data):
    path = with_file(folder, "s.tar", data)

    def index():
        with path.open("rb") as file:
            return list(members(find_place(str(path)), file, Contents()))

    for member in survives(index) or ():
        assert member.offset >= 0
        assert member.size >= 0
        assert not member.name.startswith("/") or data != TAR
    manifest = survives(open_manifest, str(path))
    if manifest is not None:
        assert manifest.rows(0, manifest.n_rows).num_rows == manifest.n_rows


@fuzz(200)
@given(body=broken_json({"n": 1, "t": "x", "b": True, "f": 0.5, "null": None, "more": [1]}), cls=st.binary(max_size=40))
def test_sidecars(folder, body, cls):
    path = with_file(folder, "side.tar", tar_of({"a.jpg": b"x", "a.cls": cls, "a.json": body, "b.jpg": b"y"}))
    manifest = survives(open_manifest, str(path))
    if manifest is not None:
        manifest.rows(0, manifest.n_rows).validate(full=True)


@fuzz(150)
@given(cut=st.integers(0, 400), data=st.data())
def test_journals(folder, cut, data):
    path = folder / "journal.jsonl"
    path.unlink(missing_ok=True)
    lines = [{"shard": n, "rows": 5, "statuses": {"ok": 5}, "name": NASTY[2]} for n in range(3)]
    for line in lines:
        append_line(path, line)
    path.write_bytes(data.draw(broken_bytes(path.read_bytes())))
    assert all(line in lines for line in survives(journal_lines, path))


def safetensors_of(header, length=None):
    return struct.pack("<Q", len(header) if length is None else length) + header + bytes(16)


CARD = {"format": 1, "backbone": {"name": "resnet10t", "options": {}}, "heads": {}, "preprocessing": {}, "digest": "00"}


@fuzz(150)
@given(
    card=broken_json(CARD), length=st.sampled_from([None, None, 0, 1, 2**31, 2**40, 2**63, 2**64 - 1]), data=st.data()
)
def test_checkpoints(folder, card, length, data):
    tensor = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    header = json.dumps({"__metadata__": {"curate": card.decode("latin-1")}, "w": tensor}).encode()
    complete = safetensors_of(header, length)
    survives(read_header, with_file(folder, "m.safetensors", data.draw(st.just(complete) | broken_bytes(complete))))


@fuzz(100)
@given(metadata=broken_json({"kind": "scores", "model": {"digest": "x"}, "settings": {}, "columns": {}}))
def test_metadata_of_tables(folder, metadata):
    path = folder / "t.parquet"
    pq.write_table(pa.table({"key": ["a"]}).replace_schema_metadata({METADATA_KEY: metadata}), path)
    survives(lambda: open_table(path).metadata)


@dataclass
class Inner:
    name: str
    share: float = 0.5


@dataclass
class Typed:
    n: int
    kind: Literal["a", "b"]
    inner: Inner
    many: list[Inner]
    named: dict[str, float]
    maybe: tuple[float, ...] | None = None
    any_: Any = None


@fuzz(300)
@given(
    text=broken_json(
        {"n": 1, "kind": "a", "inner": {"name": "x"}, "many": [{"name": "y", "share": 1}], "named": {"a": 1}}
    )
)
def test_typed_json(text):
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    read = survives(from_json, Typed, value, what="the value")
    if read is not None:
        assert type(read.n) is int
        assert read.kind in ("a", "b")
        assert all(isinstance(each, Inner) and isinstance(each.share, float) for each in [read.inner, *read.many])


@fuzz(100)
@given(value=values)
def test_any_value_as_typed_json(value):
    survives(from_json, Typed, value, what="the value")


def test_a_line_of_a_gigabyte_is_refused_by_its_bound(tmp_path, monkeypatch):
    """Sparse, so that it costs no disk; the bounds are checked before anything is read."""
    for name, read in (("a.audit.csv", read_answers), ("m.json", read_measured), ("r.receipt.json", read_receipt)):
        path = tmp_path / name
        with path.open("wb") as file:
            file.truncate(1 << 30)
        assert survives(read, path) is None
    assert Path(path).stat().st_size == 1 << 30


def test_no_reader_waits_for_a_pipe(tmp_path):
    pipes = [tmp_path / name for name in ("a.csv", "a.json", "a.jsonl", "a.toml", "a.safetensors", "a.tar")]
    for pipe in pipes:
        os.mkfifo(pipe)
    for read in (read_answers, read_verdicts, read_known, read_votes, read_receipt, read_measured, read_replay):
        for pipe in pipes:
            assert survives(read, pipe) is None
    assert survives(read_pipeline, pipes[3]) is None
    assert survives(read_header, pipes[4]) is None
    assert survives(open_manifest, str(pipes[5])) is None
