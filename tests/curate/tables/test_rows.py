"""Every kind of column as arrays, against the values in Python; in the order of the table and of the hashes."""

import hashlib
import json
import math
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from curate.reporting.columns import shown_columns
from curate.tables import batches as batches_module
from curate.tables.digests import RowDigest, tie_breaks
from curate.tables.needs import Needs
from curate.tables.rows import read_rows
from curate.tables.table import open_table
from scoring.errors import InputError

N = 60
CONDITION = "width * 2 > 100"
NEEDS = Needs(
    exact=("kappa", "half", "width", "price"),
    numbers=("kappa", "width"),
    groups=("label", "score"),
    names=("label", "width"),
    texts=("label",),
    present=("label", "kappa"),
    conditions=(("--where", CONDITION),),
    representations=frozenset({"sha256", "phash", "signature", "embedding"}),
)


def columns():
    generator = np.random.default_rng(0)

    def gaps(values):
        return [None if generator.random() < 0.2 else value for value in values]

    vectors = generator.normal(size=(N, 3)).round(2).tolist()
    vectors[3], vectors[4], vectors[5] = None, [0.0] * 3, [math.nan, 1.0, 1.0]
    kappa = generator.choice([0.1, 0.5, math.nan, math.inf], N).tolist()
    return {
        "key": pa.array([f"k{i}" for i in range(N)]),
        "status": pa.array(gaps(["ok"] * N)),
        "kappa": pa.array(gaps(kappa), pa.float32(), from_pandas=False),
        "half": pa.array([np.float16(0.1)] * N, pa.float16()),
        "width": pa.array(gaps(generator.integers(0, 100, N).tolist()), pa.int32()),
        "price": pa.array([12] * N, pa.decimal128(5, 2)),
        "score": pa.array(gaps(generator.choice([1.5, math.nan], N).tolist()), pa.float64(), from_pandas=False),
        "label": pa.array(gaps(generator.choice(["b", "a", "", " "], N).tolist())),
        "sha256": pa.array([f"{i % 9:064x}" for i in range(N)]),
        "phash": pa.array(gaps(generator.integers(0, 2**64 - 1, N, dtype=np.uint64).tolist()), pa.uint64()),
        "signature": pa.array(gaps([bytes([i]) * 255 for i in range(N)]), pa.binary(255)),
        "embedding": pa.array(vectors, pa.list_(pa.float32(), 3)),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "t.parquet"
    pq.write_table(pa.table(columns()), path, row_group_size=7)
    return path


def is_number(value):
    return value is not None and not math.isnan(value)


@pytest.mark.parametrize("by_hash", [False, True])
def test_every_kind_of_column_holds_the_values_of_its_rows(path, by_hash, monkeypatch):
    monkeypatch.setattr(batches_module, "BATCH_BYTES", 10_000)  # several batches
    rows = read_rows(open_table(path), NEEDS, by_hash=by_hash)
    python = pa.table(columns()).to_pylist()
    hashes = [xxhash.xxh64_intdigest(f"k{i}".encode()) for i in range(N)]
    order = sorted(range(N), key=hashes.__getitem__) if by_hash else list(range(N))
    assert rows.place.tolist() == (order if by_hash else [])
    assert rows.hashes.tolist() == [hashes[i] for i in order]
    assert rows.ok.tolist() == [python[i]["status"] == "ok" for i in order]
    for at, value in enumerate(python[i] for i in order):
        for name in ("kappa", "width"):
            assert rows.exact[name].valid[at] == is_number(value[name])
            stored = np.array(value[name], rows.exact[name].values.dtype) if is_number(value[name]) else None
            assert stored is None or rows.exact[name].values[at] == stored
            assert np.array_equal(rows.numbers[name][at], math.nan if stored is None else float(stored), equal_nan=True)
        score = rows.groups["score"]
        assert score.names[score.codes[at]] == ("1.5" if is_number(value["score"]) else "null")
        label, group = rows.names["label"], rows.groups["label"]
        has_label = bool((value["label"] or "").strip())
        assert (label.names[label.codes[at]] if label.codes[at] >= 0 else None) == (
            value["label"] if has_label else None
        )
        assert group.names[group.codes[at]] == ("null" if value["label"] is None else repr(value["label"]))
        assert rows.texts["label"][at].as_py() == (value["label"] if has_label else None)
        assert rows.present["label"][at] == has_label
        assert rows.present["kappa"][at] == is_number(value["kappa"])
        truth = -1 if value["width"] is None else int(value["width"] * 2 > 100)
        assert rows.truths[CONDITION][at] == truth
        assert rows.holds(CONDITION)[at] == (truth == 1)
        assert rows.texts["sha256"][at].as_py() == value["sha256"]
        assert rows.has_phash[at] == (value["phash"] is not None)
        assert value["phash"] is None or rows.phash[at] == value["phash"]
        assert rows.signature[at].tobytes() == (value["signature"] or bytes(255))
        usable = value["embedding"] is not None and all(map(math.isfinite, value["embedding"]))
        assert rows.embedding[at].tolist() == (np.float32(value["embedding"]).tolist() if usable else [0.0] * 3)
    assert rows.names["label"].names == ["a", "b"]
    assert rows.exact["half"].values.dtype == np.float32
    assert rows.exact["price"].values.tolist() == [12.0] * N
    assert {i: int(problem) for i, problem in zip(order, rows.embedding_problem, strict=True) if problem} == {
        3: 1,
        4: 2,
        5: 1,
    }


def test_the_digest_is_of_what_was_read_in_any_order_and_counts_every_value(path, tmp_path):
    first = read_rows(open_table(path), NEEDS)
    assert read_rows(open_table(path), NEEDS, by_hash=True).digest == first.digest
    turned = pa.table(columns()).take(pa.array(np.random.default_rng(1).permutation(N)))
    pq.write_table(turned, tmp_path / "turned.parquet")
    assert read_rows(open_table(tmp_path / "turned.parquet"), NEEDS).digest == first.digest
    for name in columns():
        changed = {each: values.slice(0, N - 1) for each, values in columns().items()}
        last = {each: values.slice(N - 1) for each, values in columns().items()}
        last[name] = pa.array(["another" if name in ("key", "status") else None], last[name].type)
        parts = [pa.table(changed), pa.table(last)]
        pq.write_table(pa.concat_tables(parts), tmp_path / "changed.parquet")
        same = columns()[name][N - 1].as_py() == last[name][0].as_py()
        assert (read_rows(open_table(tmp_path / "changed.parquet"), NEEDS).digest == first.digest) == same, name


def test_keys_are_unique_where_requested_and_may_be_missing(tmp_path):
    pq.write_table(pa.table({"key": ["a", "b", "a"], "width": [1, 2, None]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="unique keys"):
        read_rows(open_table(tmp_path / "t.parquet"), Needs())
    assert len(read_rows(open_table(tmp_path / "t.parquet"), Needs(), unique=False)) == 3
    pq.write_table(pa.table({"width": [1, 2, None]}), tmp_path / "u.parquet")
    rows = read_rows(open_table(tmp_path / "u.parquet"), Needs(numbers=("width",), keys=False))
    assert np.array_equal(rows.numbers["width"], [1, 2, math.nan], equal_nan=True)
    assert (len(rows.hashes), rows.digest, rows.ok.tolist()) == (0, "", [True] * 3)


def test_the_option_of_a_condition_is_in_its_message(path):
    with pytest.raises(InputError, match=r"--protect .*did you mean 'width'"):
        read_rows(open_table(path), Needs(conditions=(("--protect", "widht > 1"),)))


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(2)], ids=str)
def test_bytes_that_are_no_text_are_digested_in_every_layout(kind):
    batch = pa.record_batch({"key": ["a", "b"], "signature": pa.array([b"\xff\xfe", None], kind)})
    digest = RowDigest(batch.schema)
    digest.update(tie_breaks([b"a", b"b"]), batch)
    assert (digest.n_rows, len(digest.hexdigest())) == (2, 64)


def mixed(z):
    """Restate the last step of SplitMix64 on a whole number."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_the_digest_matches_its_definition():
    values = {"a": [1.5, None, -0.0], "b": ["x", "", None], "c": [-1, 2, 3], "e": [[1, 2], [], None]}
    kinds = {"a": pa.float32(), "b": pa.string(), "c": pa.int16(), "e": pa.list_(pa.float16())}
    batch = pa.record_batch({name: pa.array(values[name], kind) for name, kind in kinds.items()})
    keys = [b"k1", b"k2", "é".encode()]
    digest = RowDigest(batch.schema, full_lists=["e"])
    for at in (2, 0, 1):
        digest.update(tie_breaks(keys[at : at + 1]), batch.slice(at, 1))
    sums = []
    for first in (0, 0x9E3779B97F4A7C15):
        rows = []
        for at, key in enumerate(keys):
            row = mixed(xxhash.xxh64_intdigest(key) ^ first)
            for name, column in values.items():
                value = column[at]
                if value is None:
                    bits = 0xD1B54A32D192ED03
                elif name == "a":
                    bits = int.from_bytes(struct.pack("<f", value), "little")
                elif name == "c":
                    bits = value % 2**16
                else:
                    data = value.encode() if name == "b" else struct.pack(f"<{len(value)}e", *value)
                    bits = xxhash.xxh64_intdigest(data)
                row = mixed(row ^ bits)
            rows.append(row)
        sums.append(sum(rows) % 2**64)
    header = json.dumps([3, list(values), ["float", "text", "int16", "list<item: halffloat>"]]).encode()
    expected = hashlib.sha256(header + b"".join(each.to_bytes(8, "little") for each in sums)).hexdigest()
    assert digest.hexdigest() == expected


def test_decimals_of_more_than_38_digits_are_no_scores(tmp_path):
    values = pa.array([Decimal(1)], pa.decimal256(45, 0))
    pq.write_table(pa.table({"key": ["a"], "wide": values, "x": values.cast(pa.decimal128(38, 0))}), tmp_path / "t")
    table = open_table(tmp_path / "t")
    with pytest.raises(InputError, match=r"38 digits .*float64.*\(numbers: x\)"):
        read_rows(table, Needs(exact=("wide",)))
    assert read_rows(table, Needs(exact=("x",))).exact["x"].values.tolist() == [1]
    shown, _ = shown_columns(table, None)  # a report does not stop for the user's own column of them
    assert {each.column: each.is_number for each in shown} == {"wide": False, "x": True}


@pytest.mark.parametrize("kind", ["groups", "names", "texts"])
def test_a_score_is_no_column_of_classes(tmp_path, kind):
    keys = [f"k{row}" for row in range(12)]
    columns = {"score": [row / 8 for row in range(12)], "half": [row % 3 / 2 for row in range(12)]}
    columns["year"] = [2000.0 + row for row in range(12)]
    pq.write_table(pa.table({"key": keys, **columns}), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    read_rows(table, Needs(**{kind: ("half", "year")}))
    with pytest.raises(InputError, match=r"'score'.*12 different numbers.*0\.125"):
        read_rows(table, Needs(**{kind: ("half", "score")}))
