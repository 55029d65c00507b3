"""Embeddings and signatures of different makers are not compared."""

import numpy as np
import pyarrow as pa
import pytest
from made import embedded, random_signatures, signed, write_table

import curate
from curate.tables.provenance import model_of, same_model, same_signature, signature_of
from curate.tables.table import open_table
from scoring.errors import InputError

A, B = "a" * 64, "b" * 64


def columns(seed, n=4):
    generator = np.random.default_rng(seed)
    return {
        "key": [f"{seed}-{i}" for i in range(n)],
        "embedding": embedded(generator.normal(size=(n, 4)).astype("f4").tolist()),
        "signature": signed(random_signatures(generator, n)),
    }


def parts(folder, *makers):
    folder.mkdir()
    for number, (model, signature) in enumerate(makers):
        write_table(folder / f"part-{number}.parquet", columns(number), model=model, signature=signature)
    return folder


def test_a_table_records_its_model(tmp_path):
    table = open_table(parts(tmp_path / "one", (A, "x"), (A, "x")))
    assert (model_of(table), signature_of(table)) == (A, "x")
    bare = open_table(parts(tmp_path / "bare", (None, None)))
    assert (model_of(bare), signature_of(bare)) == ("", "")


@pytest.mark.parametrize("other", [B, None])
def test_parts_of_two_models_are_refused_naming_both_where_embeddings_count(tmp_path, other):
    folder = parts(tmp_path / "two", (A, "x"), (A, "x"), (other, "x"))
    with pytest.raises(InputError) as caught:
        curate.dedup(folder, finder=["embedding"], dry_run=True)
    text = str(caught.value)
    assert "embeddings of two models" in text
    assert f"method of {A} (aaaaaaaaaaaa) in part-0.parquet" in text
    assert ("bbbbbbbbbbbb" if other else "(unknown)") in text
    assert "part-2.parquet" in text
    assert "\n" not in text
    assert curate.dedup(folder, finder=["signature"], dry_run=True).kept == 12


@pytest.mark.parametrize("other", ["y", None])
def test_parts_with_two_kinds_of_signatures_are_refused_naming_both_where_these_count(tmp_path, other):
    folder = parts(tmp_path / "two", (A, "x"), (A, other))
    with pytest.raises(InputError) as caught:
        curate.dedup(folder, dry_run=True)
    text = str(caught.value)
    assert "two kinds of signatures" in text
    assert "x in part-0.parquet" in text
    assert f"{other or 'unknown'} in part-1.parquet" in text
    assert curate.dedup(folder, finder=["embedding"], dry_run=True).kept == 8


@pytest.mark.parametrize(
    ("maker", "check", "words"),
    [
        ((B, "x"), same_model, ["embeddings of one model", "aaaaaaaaaaaa", "bbbbbbbbbbbb", "leave embeddings out"]),
        ((None, "x"), same_model, ["embeddings of one model", "aaaaaaaaaaaa", "unknown"]),
        ((A, "y"), same_signature, ["signatures of one kind", "x in", "y in", "leave signatures out"]),
        ((A, None), same_signature, ["signatures of one kind", "x in", "unknown in"]),
    ],
)
def test_another_table_of_another_maker_is_refused_naming_both(tmp_path, maker, check, words):
    mine = write_table(tmp_path / "mine.parquet", columns(0), model=A, signature="x")
    others = write_table(tmp_path / "theirs.parquet", columns(1), model=maker[0], signature=maker[1])
    finder = "embedding" if check is same_model else "signature"
    with pytest.raises(InputError) as caught:
        curate.dedup(mine, finder=[finder], against=others, dry_run=True)
    for word in [*words, "mine.parquet", "theirs.parquet"]:
        assert word in str(caught.value)
    with pytest.raises(InputError):
        check(open_table(mine), open_table(others))
    unaffected = "signature" if check is same_model else "embedding"
    assert curate.dedup(mine, finder=[unaffected], against=others, dry_run=True).n_leaks == 0


def test_metadata_of_an_odd_shape_is_ignored(tmp_path):
    path = tmp_path / "odd.parquet"
    table = pa.table(columns(0)).replace_schema_metadata({"curate": '{"model": "name", "settings": [1]}'})
    pa.parquet.write_table(table, path)
    assert (model_of(open_table(path)), signature_of(open_table(path))) == ("", "")
