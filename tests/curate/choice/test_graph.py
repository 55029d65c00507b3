"""The graph of neighbours in a file: the same picks with it as without, and no graph of another table."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from choosing import columns_of, csv, write

from curate.choice.run import choose_table
from curate.selectors import SELECTORS, Pool
from curate.selectors.graphs import Neighboured, neighbours
from curate.verify import verify
from scoring.errors import InputError
from scoring.search.graph import Graph, knn_graph

SPARSE = {
    "prob-cover": {"exact_rows": "1", "neighbours": "6"},
    "facility-location": {"exact_rows": "1", "neighbours": "6"},
    "facility-location-stochastic": {"exact_rows": "1", "neighbours": "6"},
    "pairwise": {"neighbours": "6"},
}


def keys(result):
    return pq.read_table(result.subset)["key"].to_pylist()


@pytest.fixture
def scores(tmp_path):
    return write(tmp_path / "s.parquet", columns_of(80))


@pytest.mark.parametrize("name", SPARSE)
def test_picks_with_the_file_are_those_without(scores, tmp_path, name):
    plain = choose_table(scores, tmp_path / "a.parquet", name, 12, settings=SPARSE[name])
    graph = tmp_path / "g.parquet"
    first = choose_table(scores, tmp_path / "b.parquet", name, 12, settings=SPARSE[name], graph=graph)
    before = graph.read_bytes()
    again = choose_table(scores, tmp_path / "c.parquet", name, 12, settings=SPARSE[name], graph=graph)
    assert keys(plain) == keys(first) == keys(again)
    assert graph.read_bytes() == before
    assert any("is used again" in note for note in again.notes)
    assert verify(again.receipt).identical


def test_the_graph_is_computed_once(scores, tmp_path, monkeypatch):
    choose_table(scores, tmp_path / "a.parquet", "pairwise", 5, graph=tmp_path / "g.parquet")
    monkeypatch.setattr("curate.choice.graph.knn_graph", None)
    monkeypatch.setattr("scoring.search.graph.knn_graph", None)
    for name in SPARSE:
        choose_table(
            scores, tmp_path / "b.parquet", name, 5, settings=SPARSE[name], graph=tmp_path / "g.parquet", overwrite=True
        )


def test_a_shuffled_table_uses_the_same_graph(scores, tmp_path):
    one = choose_table(scores, tmp_path / "a.parquet", "pairwise", 9, graph=tmp_path / "g.parquet")
    write(scores, columns_of(80), np.random.default_rng(5).permutation(80))
    two = choose_table(scores, tmp_path / "b.parquet", "pairwise", 9, graph=tmp_path / "g.parquet")
    assert keys(one) == keys(two)


def test_left_out_rows_are_nobodys_neighbours(scores, tmp_path):
    out = csv(tmp_path / "x.csv", [(f"img/{i:03}.png",) for i in range(40)], header="key")
    result = choose_table(scores, tmp_path / "a.parquet", "pairwise", 9, graph=tmp_path / "g.parquet", exclude=out)
    plain = choose_table(scores, tmp_path / "b.parquet", "pairwise", 9, exclude=out)
    assert keys(result) == keys(plain)  # 64 neighbours of 79 leave 10 among the 40 that are left


@pytest.mark.parametrize("seed", range(3))
def test_the_graph_among_some_rows_is_their_own_graph_while_it_reaches(seed):
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((50, 6)).astype(np.float32)
    whole = knn_graph(vectors, 49)
    rows = np.sort(generator.choice(50, 30, replace=False))
    pool = Neighboured(rows[:20], rows[20:], vectors, graph=whole)
    at, found, notes = neighbours(pool, 7, 0)
    own = knn_graph(vectors[rows], 7)
    assert at.tolist() == rows.tolist()
    assert np.array_equal(found.index, own.index)
    assert np.allclose(found.cosine, own.cosine, atol=1e-6)
    assert notes == ()


def test_neighbours_that_a_short_graph_lacks_are_missing_and_told():
    vectors = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    pool = Neighboured(np.arange(0, 50, 2), vectors=vectors, graph=knn_graph(vectors, 8))
    _, found, notes = neighbours(pool, 8, 0)
    assert (found.index < 0).any()
    assert np.isneginf(found.cosine[found.index < 0]).all()
    share = (found.index < 0).mean()
    assert notes == (f"approximate: {share:.2%} of the neighbours that the graph names are left out rows",)
    longer = neighbours(pool, 9, 0)[1]  # more than it has: computed anew
    assert (longer.index >= 0).all()


def test_a_pool_with_a_graph_is_a_pool_for_every_other_strategy():
    vectors = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
    plain = Pool(np.arange(30), vectors=vectors)
    with_graph = Neighboured(np.arange(30), vectors=vectors, graph=knn_graph(vectors, 5))
    for name in ("auto", "k-center", "random", "k-means"):
        assert SELECTORS[name]()(with_graph, 6).rows.tolist() == SELECTORS[name]()(plain, 6).rows.tolist()
    assert isinstance(with_graph.graph, Graph)


def changed(path, tell=None, **metadata):
    whole = pq.read_table(path)
    told = json.loads(whole.schema.metadata[b"curate"])
    told.update(metadata)
    if tell:
        tell(told)
    pq.write_table(whole.replace_schema_metadata({"curate": json.dumps(told)}), path)


def test_the_graph_of_another_table_is_refused_with_the_difference(scores, tmp_path):
    graph = tmp_path / "g.parquet"
    choose_table(scores, tmp_path / "a.parquet", "pairwise", 5, graph=graph)
    fewer = write(tmp_path / "t.parquet", {name: values[:70] for name, values in columns_of(80).items()})
    with pytest.raises(InputError, match="it has 80 rows where this choice has 70; name another file"):
        choose_table(fewer, dry_run=True, strategy="pairwise", budget=5, graph=graph)
    renamed = columns_of(80)
    renamed["key"][3] = "other.png"
    with pytest.raises(InputError, match="it has other keys"):
        choose_table(write(tmp_path / "t.parquet", renamed), dry_run=True, strategy="pairwise", budget=5, graph=graph)
    moved = columns_of(80)
    moved["embedding"][3] = moved["embedding"][4]
    with pytest.raises(InputError, match="it has other embeddings of the same keys"):
        choose_table(write(tmp_path / "t.parquet", moved), dry_run=True, strategy="pairwise", budget=5, graph=graph)
    changed(graph, lambda told: told["graph"].update(model_digest="another"))
    with pytest.raises(InputError, match="it has embeddings of another model"):
        choose_table(scores, dry_run=True, strategy="pairwise", budget=5, graph=graph)


def test_a_damaged_graph_is_one_line(scores, tmp_path):
    graph = tmp_path / "g.parquet"
    choose_table(scores, tmp_path / "a.parquet", "pairwise", 5, graph=graph)
    whole = graph.read_bytes()

    def refused(said):
        with pytest.raises(InputError, match=said):
            choose_table(scores, dry_run=True, strategy="pairwise", budget=5, graph=graph)
        graph.write_bytes(whole)

    changed(graph, kind="scores")
    refused("is not a graph of neighbours")
    changed(graph, recall={"estimate": "x"})
    refused("nothing says what it finds")
    table = pq.read_table(graph)
    width = table.schema.field("neighbours").type.list_size
    wild = pa.FixedSizeListArray.from_arrays(pa.array(np.full(80 * width, 80, np.int32)), width)
    pq.write_table(table.set_column(1, "neighbours", wild), graph)
    refused("it names rows that it has not")
    pq.write_table(table.slice(0, 40), graph)
    refused("it has 40 rows")
    pq.write_table(pq.read_table(scores), graph)
    refused("is not a graph of neighbours; name another file")
    pq.write_table(table.drop_columns(["hash"]), graph)
    refused("has no column 'hash'")


def test_a_dry_run_and_a_verification_write_no_graph(scores, tmp_path):
    graph = tmp_path / "g.parquet"
    choose_table(scores, dry_run=True, strategy="pairwise", budget=5, graph=graph)
    assert not graph.exists()
    result = choose_table(scores, tmp_path / "a.parquet", "pairwise", 5, graph=graph)
    graph.unlink()
    found = verify(result.receipt)
    assert not graph.exists()
    assert not found.n_different
    assert any("g.parquet is not the one that was read then" in note for note in found.notes)
