"""A column of the user's own embeddings, read as ``embedding``."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.tables.needs import EMBEDDINGS, Needs
from curate.tables.provenance import model_of, same_model
from curate.tables.rows import read_rows
from curate.tables.table import embedding_matrix, open_table
from curate.tables.user_embeddings import units
from curate.tables.vectors import MISSING, ZERO
from scoring.errors import InputError

N, D = 12, 5


def vectors(seed=0, n=N):
    return np.random.default_rng(seed).normal(size=(n, D))


def lists(values, kind):
    return pa.array([None if row is None else [*row] for row in values], kind)


def write(path, columns, metadata=None):
    table = pa.table({"key": [f"k{i}" for i in range(len(next(iter(columns.values()))))], **columns})
    pq.write_table(table.replace_schema_metadata({b"curate": json.dumps(metadata or {}).encode()}), path)
    return path


KINDS = {
    f"{shape} of {number}": make(number)
    for number in (pa.float16(), pa.float32(), pa.float64())
    for shape, make in (
        ("list", pa.list_),
        ("large list", pa.large_list),
        ("fixed list", lambda number: pa.list_(number, D)),
    )
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_lists_of_floats_are_read_at_unit_length(tmp_path, kind):
    values = np.asarray(vectors(), KINDS[kind].value_type.to_pandas_dtype())
    path = write(tmp_path / "t.parquet", {"clip": lists(values, KINDS[kind])})
    table = open_table(path, embedding="clip")
    read = np.concatenate([embedding_matrix(batch.column(0)) for batch in table.batches(["embedding"], rows=5)])
    expected = [row / sum(x * x for x in row) ** 0.5 for row in values.astype(float)]
    assert np.allclose(read.astype(float), expected, atol=1e-3 if read.itemsize == 2 else 1e-6)
    assert read.itemsize == min(4, values.itemsize)
    assert table.take([3, 1], ["embedding", "key", "clip"]).column_names == ["embedding", "key", "clip"]
    assert table.read(["embedding"]).schema.field(0).type == table.schema.field("embedding").type


def test_it_replaces_the_embedding_and_leaves_the_stored_table_alone(tmp_path):
    clip, other = vectors(1), vectors(2)
    columns = {"embedding": lists(other, pa.list_(pa.float32())), "clip": lists(clip, pa.list_(pa.float32()))}
    plain = open_table(write(tmp_path / "t.parquet", columns))
    table = plain.by("clip")
    assert table.schema.names == ["key", "clip", "embedding"]
    rows = read_rows(table, Needs(representations=EMBEDDINGS))
    assert np.allclose(rows.embedding, clip / np.linalg.norm(clip, axis=1)[:, None], atol=1e-6)
    assert table.stored.read().equals(pq.read_table(tmp_path / "t.parquet").replace_schema_metadata(None))
    assert table.by(None) is table.by("embedding") is plain
    assert open_table(tmp_path / "t.parquet", embedding="embedding").embedding_column is None


def test_rows_of_unit_length_stay_to_the_bit_and_so_do_rows_without_a_direction():
    for kind in (np.float16, np.float32):
        rows = vectors(3, 1000)
        rows = (rows / np.linalg.norm(rows, axis=1)[:, None]).astype(kind)
        assert np.array_equal(units(rows), rows)
    wild = np.array([[0, 0], [np.nan, 1], [np.inf, 1], [3e300, 4e300], [3e-320, 0], [-1e-30, 0]])
    scaled = units(wild)
    assert scaled.dtype == np.float32
    assert np.array_equal(scaled[0], [0, 0])
    assert np.isnan(scaled[1, 0])
    assert not np.isfinite(scaled[2]).all()
    assert np.allclose(scaled[3], [0.6, 0.8])
    assert np.allclose(scaled[4:], [[1, 0], [-1, 0]])
    assert units(np.zeros((0, 4), np.float16)).shape == (0, 4)


def test_rows_that_cannot_be_compared_are_counted_as_for_embedding(tmp_path):
    values = [*vectors(), None, np.zeros(D), np.array([1, np.nan, 0, 0, 0]), [1.0, None, 0.0, 0.0, 0.0]]
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float32(), D), pa.list_(pa.float16())):
        typed = [None if row is None else [None if x is None else np.float16(x) for x in row] for row in values]
        path = write(tmp_path / "t.parquet", {"clip": lists(typed, kind)})
        rows = read_rows(open_table(path, embedding="clip"), Needs(representations=EMBEDDINGS))
        assert rows.embedding_problem.tolist() == [0] * N + [MISSING, ZERO, MISSING, MISSING]
    nothing = write(tmp_path / "n.parquet", {"clip": lists([None] * 3, pa.list_(pa.float32()))})
    rows = read_rows(open_table(nothing, embedding="clip"), Needs(representations=EMBEDDINGS))
    assert rows.embedding_problem.tolist() == [MISSING] * 3


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array(["a", "b"]), r"'clip' of .*, got string"),
        (pa.array([[1], [2]]), "list<.*int64>; choose"),
        (pa.array([[[1.0]], [[2.0]]]), "got list<"),
        (pa.array([1.0, 2.0]), "got double"),
    ],
)
def test_a_column_of_something_else_is_refused(tmp_path, column, words):
    path = write(tmp_path / "t.parquet", {"clip": column})
    with pytest.raises(InputError, match=words) as error:
        open_table(path, embedding="clip")
    assert "\n" not in str(error.value)


def test_a_column_that_is_not_there_is_named_with_the_closest(tmp_path):
    path = write(tmp_path / "t.parquet", {"clip": lists(vectors(), pa.list_(pa.float32()))})
    with pytest.raises(InputError, match="did you mean 'clip'"):
        open_table(path, embedding="clp")


@pytest.mark.parametrize("at", [1, 11])
def test_vectors_of_several_lengths_are_refused_in_one_line(tmp_path, at):
    values = [list(row) for row in vectors()]
    values[at] = values[at][:3]
    path = write(tmp_path / "t.parquet", {"clip": lists(values, pa.list_(pa.float32()))})
    with pytest.raises(InputError, match=r"'clip' .*got 3, 5;"):
        list(open_table(path, embedding="clip").batches(["embedding"], rows=4))


def test_the_column_is_not_the_models_that_scored_the_table(tmp_path):
    both = {"embedding": lists(vectors(), pa.list_(pa.float32())), "clip": lists(vectors(1), pa.list_(pa.float32()))}
    paths = [write(tmp_path / f"{digest}.parquet", both, {"model": {"digest": digest}}) for digest in "ab"]
    plain = [open_table(path) for path in paths]
    by_column = [table.by("clip") for table in plain]
    assert [model_of(table) for table in (*plain, *by_column)] == ["a", "b", "column clip", "column clip"]
    same_model(*by_column)
    for first, second in (plain, (plain[0], by_column[0]), (by_column[0], plain[0])):
        with pytest.raises(InputError, match="one model, got two"):
            same_model(first, second)
