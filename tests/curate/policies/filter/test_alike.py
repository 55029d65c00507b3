"""Rows kept and dropped by example, against cosines in NumPy."""

import json

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run

import curate
from curate.policies.receipts import sealed
from curate.policies.verify import verify
from scoring.errors import InputError

N = 40


@pytest.fixture
def dataset(tmp_path):
    """Rows around three directions; row 5 has no embedding, row 6 failed."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(N, 5)).astype(np.float32) * 0.3
    rows[np.arange(N), np.arange(N) % 3] += 2
    lists = [None if i == 5 else (row * 3).tolist() for i, row in enumerate(rows)]
    columns = {
        "key": [f"k{i}" if i else "a=b" for i in range(N)],
        "status": ["corrupt" if i == 6 else "ok" for i in range(N)],
        "embedding": pa.array(lists, pa.list_(pa.float32(), 5)),
    }
    pq.write_table(pa.table(columns), tmp_path / "heap.parquet")
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return tmp_path, units @ units.T


def decided(path):
    return pl.read_parquet(path.with_name(path.stem + ".decisions.parquet"))


def test_what_is_like_any_example_stays_and_the_reason_names_the_nearest(dataset):
    folder, cosine = dataset
    curate.filter(folder / "heap.parquet", folder / "kept.parquet", like=["k1", "k2=0.95"])
    beyond = np.stack([cosine[1] - 0.8, cosine[2] - 0.95])
    for i, row in enumerate(decided(folder / "kept.parquet").iter_rows(named=True)):
        if i == 6:
            assert row["decision"] == "failed"
        elif i == 5:
            assert row["decision"] == "undecided"
            assert "no embedding" in row["reason"]
        else:
            best = int(beyond[:, i].argmax())
            assert row["decision"] == ("keep" if beyond[best, i] >= -1e-6 else "drop")
            assert f"{('k1', 'k2')[best]} (cosine" in row["reason"]
            assert row["score"] == pytest.approx(cosine[best + 1, i], abs=1e-5)
            assert row["threshold"] == (0.8, 0.95)[best]
    assert verify(folder / "kept.receipt.json").identical


def test_unlike_drops_what_like_keeps(dataset):
    folder, _ = dataset
    curate.filter(folder / "heap.parquet", folder / "like.parquet", like=["k1", "k2"])
    curate.filter(folder / "heap.parquet", folder / "unlike.parquet", unlike=["k1", "k2"])
    like, unlike = (set(pl.read_parquet(folder / f"{name}.parquet")["key"]) for name in ("like", "unlike"))
    assert {"k1", "k2"} <= like
    assert not like & unlike
    assert len(like | unlike) == N - 2


def test_examples_apply_in_the_order_typed_among_other_rules(dataset):
    folder, _ = dataset
    table, out = folder / "heap.parquet", folder / "o.parquet"
    typed = ["filter", table, "--like", "k1=0.9", "--where", "key != 'k1'", "--like", "k2=0.9", "-o", out]
    assert run(*typed).exit_code == 0
    rules = json.loads((folder / "o.receipt.json").read_text())["policy"]
    assert [rule["rule"] for rule in rules] == ["like", "where"]
    assert [example["name"] for example in rules[0]["examples"]] == ["k1", "k2"]
    assert "k2" in set(pl.read_parquet(out)["key"])


def test_a_key_may_hold_the_sign_of_a_cosine(dataset):
    folder, _ = dataset
    for text in ("a=b", "a=b=0.99"):
        result = curate.filter(folder / "heap.parquet", like=text, dry_run=True)
        assert result.kept >= 1


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ("nobody", "no key 'nobody'"),
        ("k1=1.5", "above 0 and"),
        ("k1=0", "above 0 and"),
        ("k1=nan", "above 0 and"),
        ("k5", "no embedding"),
        ("", "no key ''"),
    ],
)
def test_an_example_that_cannot_be_is_one_line(dataset, example, words):
    folder, _ = dataset
    result = run("filter", folder / "heap.parquet", "--unlike", example, "--dry-run")
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_no_example_at_all_is_refused(dataset):
    with pytest.raises(InputError, match="--like takes a key"):
        curate.filter(dataset[0] / "heap.parquet", like=[], dry_run=True)


def test_a_table_without_embeddings_is_one_line(tmp_path):
    pq.write_table(pa.table({"key": ["a"]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="no column 'embedding'"):
        curate.filter(tmp_path / "t.parquet", like="a", dry_run=True)


def test_an_image_is_embedded_by_the_tables_model_and_kept_in_the_receipt(
    full_table, folder, tiny_checkpoint, tmp_path
):
    image = tmp_path / "example.png"
    image.write_bytes((folder / "03.png").read_bytes())
    out = tmp_path / "out.parquet"
    curate.filter(full_table, out, unlike=f"{image}=0.999", model=tiny_checkpoint)
    gone = decided(out).filter(pl.col("decision") == "drop")
    assert {"03.png", "05.png"} <= set(gone["key"])  # the row of that image, and its copy
    assert gone["reason"].str.contains("example.png").all()
    image.unlink()
    assert verify(tmp_path / "out.receipt.json").identical
    text = tmp_path / "no.png"
    text.write_text("no image")
    with pytest.raises(InputError, match="not a readable image"):
        curate.filter(full_table, like=str(text), model=tiny_checkpoint, dry_run=True)
    with pytest.raises(InputError, match="--model"):
        curate.filter(full_table, like=str(folder / "04.png"), dry_run=True)


def test_a_receipt_with_a_damaged_example_is_refused(dataset):
    folder, _ = dataset
    curate.filter(folder / "heap.parquet", folder / "kept.parquet", like="k1")
    receipt = folder / "kept.receipt.json"
    text = json.loads(receipt.read_text())
    for vector in ("!!", "AAAA", "AAAAAA=="):
        text["policy"][0]["examples"][0]["vector"] = vector
        receipt.write_bytes(sealed(text))
        with pytest.raises(InputError):
            verify(receipt)
