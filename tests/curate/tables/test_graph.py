"""The graph of neighbours in a file: the same picks with it as without, and no graph of another table."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from choosing import columns_of, csv, write

import curate
from curate.commands.verify_words import lines_of
from curate.policies.verify import verify
from curate.selectors.graphs import computes_graph, neighbours
from curate.selectors.pool import Pool
from curate.selectors.table import SELECTORS
from curate.tables.graph import stored_graph
from scoring.errors import InputError
from scoring.search.graph import knn_graph
from scoring.search.links import Graph

SPARSE = {
    "prob-cover": {"exact_rows": "1", "neighbours": "6"},
    "facility-location": {"exact_rows": "1", "neighbours": "6"},
    "pairwise": {"neighbours": "6"},
    "typiclust": {"most_clusters": "4"},
}


def keys(result):
    return pq.read_table(result.subset)["key"].to_pylist()


@pytest.fixture
def scores(tmp_path):
    return write(tmp_path / "s.parquet", columns_of(80))


@pytest.mark.parametrize("name", SPARSE)
def test_picks_with_the_file_are_those_without(scores, tmp_path, name):
    plain = curate.select(scores, tmp_path / "a.parquet", name, 12, set=SPARSE[name])
    graph = tmp_path / "g.parquet"
    first = curate.select(scores, tmp_path / "b.parquet", name, 12, set=SPARSE[name], graph=graph)
    before = graph.read_bytes()
    again = curate.select(scores, tmp_path / "c.parquet", name, 12, set=SPARSE[name], graph=graph)
    assert keys(plain) == keys(first) == keys(again)
    assert graph.read_bytes() == before
    assert any("is used again" in note for note in again.notes)
    assert verify(again.receipt).identical


def test_the_graph_is_computed_once(scores, tmp_path, monkeypatch):
    curate.select(scores, tmp_path / "a.parquet", "pairwise", 5, graph=tmp_path / "g.parquet")
    monkeypatch.setattr("curate.tables.graph._computed", None)
    for name in SPARSE:
        result = curate.select(
            scores, tmp_path / "b.parquet", name, 5, set=SPARSE[name], graph=tmp_path / "g.parquet", overwrite=True
        )
        assert any("is used again" in note for note in result.notes)


@pytest.mark.parametrize("flag", ["per", "balance"])
def test_shares_and_a_graph_are_refused_before_one_is_computed(scores, tmp_path, monkeypatch, flag):
    monkeypatch.setattr("curate.tables.graph._computed", None)
    with pytest.raises(InputError, match=f"--graph .* --{flag} picks in each group"):
        curate.select(
            scores, dry_run=True, strategy="pairwise", budget=5, graph=tmp_path / "g.parquet", **{flag: "photographer"}
        )


@pytest.mark.parametrize("name", ["prob-cover", "facility-location"])
def test_few_rows_are_compared_all_with_all_and_it_is_said_that_the_graph_is_not_looked_at(scores, tmp_path, name):
    note = "the graph is not looked at: 80 rows are few enough to be compared all with all"
    exact = curate.select(scores, dry_run=True, strategy=name, budget=5, graph=tmp_path / "g.parquet")
    assert note in exact.notes
    for settings, graph in (({"exact_rows": "79"}, tmp_path / "g.parquet"), ({}, None)):
        other = curate.select(scores, dry_run=True, strategy=name, budget=5, set=settings, graph=graph)
        assert note not in other.notes


def test_a_shuffled_table_uses_the_same_graph(scores, tmp_path):
    first = curate.select(scores, tmp_path / "a.parquet", "pairwise", 9, graph=tmp_path / "g.parquet")
    write(scores, columns_of(80), np.random.default_rng(5).permutation(80))
    second = curate.select(scores, tmp_path / "b.parquet", "pairwise", 9, graph=tmp_path / "g.parquet")
    assert keys(first) == keys(second)


def test_left_out_rows_are_nobodys_neighbours(scores, tmp_path):
    out = csv(tmp_path / "x.csv", [(f"img/{i:03}.png",) for i in range(40)], header="key")
    result = curate.select(scores, tmp_path / "a.parquet", "pairwise", 9, graph=tmp_path / "g.parquet", exclude=out)
    plain = curate.select(scores, tmp_path / "b.parquet", "pairwise", 9, exclude=out)
    assert keys(result) == keys(plain)  # 64 neighbours of 79 leave 10 among the 40 that are left


@pytest.mark.parametrize("seed", range(3))
def test_the_graph_among_some_rows_is_their_own_graph_while_it_reaches(seed):
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((50, 6)).astype(np.float32)
    of_all = knn_graph(vectors, 49)
    rows = np.sort(generator.choice(50, 30, replace=False))
    pool = Pool(rows[:20], rows[20:], vectors, graph=of_all)
    at, graph, notes = neighbours(pool, 7, 0)
    of_rows = knn_graph(vectors[rows], 7)
    assert at.tolist() == rows.tolist()
    assert np.array_equal(graph.index, of_rows.index)
    assert np.allclose(graph.cosine, of_rows.cosine, atol=1e-6)
    assert notes == ()


def test_neighbours_that_a_short_graph_lacks_are_missing_and_told():
    vectors = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    pool = Pool(np.arange(0, 50, 2), vectors=vectors, graph=knn_graph(vectors, 8))
    _, graph, notes = neighbours(pool, 8, 0)
    assert (graph.index < 0).any()
    assert np.isneginf(graph.cosine[graph.index < 0]).all()
    share = (graph.index < 0).mean()
    assert notes == (f"approximate: {share:.2%} of the neighbours that the graph names are left out rows",)
    longer = neighbours(pool, 9, 0)[1]  # more than it has: computed again
    assert (longer.index >= 0).all()


def test_a_graph_that_knows_little_of_the_rows_that_are_left_is_computed_anew():
    vectors = np.random.default_rng(0).standard_normal((200, 6)).astype(np.float32)
    pool = Pool(np.arange(0, 200, 10), vectors=vectors, graph=knn_graph(vectors, 8))
    _, graph, notes = neighbours(pool, 8, 0)
    assert np.array_equal(graph.index, knn_graph(vectors[::10], 8).index)
    assert len(notes) == 1
    assert notes[0].endswith("are left out rows: a graph of the 20 others is computed")
    lost = 1 - np.isin(knn_graph(vectors, 8).index[::10], np.arange(0, 200, 10)).mean()
    assert notes[0].startswith(f"{lost:.2%} of the neighbours")


def test_a_pool_with_a_graph_is_a_pool_for_every_other_strategy():
    vectors = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
    plain = Pool(np.arange(30), vectors=vectors)
    with_graph = Pool(np.arange(30), vectors=vectors, graph=knn_graph(vectors, 5))
    for name in ("auto", "k-center", "random", "k-means"):
        assert SELECTORS[name]()(with_graph, 6).rows.tolist() == SELECTORS[name]()(plain, 6).rows.tolist()
    assert isinstance(with_graph.graph, Graph)


def hashed(n, seed=0):
    return np.random.default_rng(seed).integers(0, 2**64, n, np.uint64)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_graph_of_more_rows_serves_some_of_them_in_any_order(tmp_path, dtype):
    generator = np.random.default_rng(3)
    vectors, keys = generator.standard_normal((120, 7)).astype(dtype), hashed(120)
    full = stored_graph(tmp_path / "g.parquet", keys, vectors, "m", write=True)
    assert np.array_equal(full.graph.index, knn_graph(vectors, 64).index)
    some = generator.permutation(120)[:50]
    part = stored_graph(tmp_path / "g.parquet", keys[some], vectors[some], "m", write=False)
    cosine = exact_cosines(vectors)
    for at, row in enumerate(some.tolist()):
        near = [r for r in np.argsort(-cosine[row], kind="stable").tolist() if r != row][:64]
        assert some[part.graph.index[at][part.graph.index[at] >= 0]].tolist() == [r for r in near if r in some]
    named = 120 * 64
    kept = sum(len(set(full.graph.index[row].tolist()) & set(some.tolist())) for row in some.tolist())
    assert f"the graph of 120 rows is used again, for 50 of them: {1 - kept / (50 * 64):.2%} of" in part.notes[0]
    assert (full.graph.index >= 0).sum() == named
    assert part.digest == full.digest == hashlib.sha256((tmp_path / "g.parquet").read_bytes()).hexdigest()


def exact_cosines(vectors):
    unit = vectors.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return unit @ unit.T


def test_the_graph_does_not_depend_on_the_order_of_the_rows(tmp_path):
    vectors, keys = np.random.default_rng(3).standard_normal((90, 7)).astype(np.float32), hashed(90)
    order = np.random.default_rng(4).permutation(90)
    for name, some in (("a", np.arange(90)), ("b", order)):
        stored_graph(tmp_path / f"{name}.parquet", keys[some], vectors[some], "m", write=True)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    read = stored_graph(tmp_path / "a.parquet", keys[order], vectors[order], "m", write=False)
    made = stored_graph(tmp_path / "c.parquet", keys[order], vectors[order], "m", write=False)
    assert np.array_equal(read.graph.index, made.graph.index)


@pytest.mark.parametrize("n", [1, 2, 3, 64, 65, 66])
def test_a_graph_names_all_other_rows_and_64_at_most(tmp_path, n):
    vectors = np.random.default_rng(1).standard_normal((n, 3)).astype(np.float32)
    stored = stored_graph(tmp_path / "g.parquet", hashed(n), vectors, "m", write=True)
    again = stored_graph(tmp_path / "g.parquet", hashed(n), vectors, "m", write=False)
    for each in (stored, again):
        assert (each.graph.index >= 0).sum(1).tolist() == [min(n - 1, 64)] * n


def test_a_graph_without_a_folder_to_lie_in_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("curate.tables.graph._computed", None)
    rows = np.ones((3, 2), np.float32)
    (tmp_path / "none").touch()
    with pytest.raises(InputError, match=r"cannot write .*none/g.parquet: .* not a folder"):
        stored_graph(tmp_path / "none" / "g.parquet", hashed(3), rows, "m", write=True)
    with pytest.raises(InputError, match=r"expected a name like graph.parquet, got .*g.txt"):
        stored_graph(tmp_path / "g.txt", hashed(3), rows, "m", write=True)


def test_what_uses_a_graph_and_what_computes_one_of_its_own():
    def of(name, n):
        selector = SELECTORS[name]()
        return selector.uses_graph, computes_graph(selector, n)

    assert {name for name in SELECTORS if of(name, 1)[0]} == set(SPARSE)
    assert {name for name in SELECTORS if of(name, 5_000)[1]} == {"pairwise"}
    assert {name for name in SELECTORS if of(name, 5_001)[1]} == set(SPARSE) - {"typiclust"}


def changed(path, edit=None, **metadata):
    table = pq.read_table(path)
    notes = json.loads(table.schema.metadata[b"curate"])
    notes.update(metadata)
    if edit:
        edit(notes)
    pq.write_table(table.replace_schema_metadata({"curate": json.dumps(notes)}), path)


def test_the_graph_of_another_table_is_refused_with_the_difference(scores, tmp_path):
    graph = tmp_path / "g.parquet"
    curate.select(scores, tmp_path / "a.parquet", "pairwise", 5, graph=graph)
    more = write(tmp_path / "t.parquet", columns_of(90))
    with pytest.raises(InputError, match="hold the 90 rows that are compared, got 80 rows without 10 of these; name"):
        curate.select(more, dry_run=True, strategy="pairwise", budget=5, graph=graph)
    renamed = columns_of(80)
    renamed["key"][3] = "other.png"
    with pytest.raises(InputError, match="got 80 rows without 1 of these; name another file"):
        curate.select(write(tmp_path / "t.parquet", renamed), dry_run=True, strategy="pairwise", budget=5, graph=graph)
    moved = columns_of(80)
    moved["embedding"][3] = moved["embedding"][4]
    with pytest.raises(InputError, match="it has other embeddings of 1 of the same 80 keys"):
        curate.select(write(tmp_path / "t.parquet", moved), dry_run=True, strategy="pairwise", budget=5, graph=graph)
    changed(graph, lambda notes: notes["graph"].update(model_digest="another"))
    with pytest.raises(InputError, match="it has embeddings of another model"):
        curate.select(scores, dry_run=True, strategy="pairwise", budget=5, graph=graph)


def flipped(data):
    """A file with one byte of its first pages changed."""
    return data[:2000] + bytes([data[2000] ^ 1]) + data[2001:]


def test_a_damaged_graph_is_one_line(scores, tmp_path):
    graph = tmp_path / "g.parquet"
    curate.select(scores, tmp_path / "a.parquet", "pairwise", 5, graph=graph)
    intact = graph.read_bytes()

    def refused(said):
        with pytest.raises(InputError, match=said):
            curate.select(scores, dry_run=True, strategy="pairwise", budget=5, graph=graph)
        graph.write_bytes(intact)

    changed(graph, lambda notes: notes["graph"].pop("format"))
    refused("was made by another version of curate; delete it, and it is made again")
    changed(graph, kind="scores")
    refused("is not a graph of neighbours")
    changed(graph, recall={"estimate": "x"})
    refused("nothing says what it finds")
    changed(graph, recall={"estimate": 1, "low": 1, "high": 1, "n_pairs": np.inf, "exact": True})
    refused("nothing says what it finds")
    table = pq.read_table(graph)
    width = table.schema.field("neighbours").type.list_size

    def lists(values):
        return pa.FixedSizeListArray.from_arrays(pa.array(values), width)

    pq.write_table(table.set_column(2, "neighbours", lists(np.full(80 * width, 80, np.int32))), graph)
    refused("it names rows that it has not")
    some = pa.array([None, *range(1, width), *np.concatenate(table["neighbours"].to_pylist()[1:]).tolist()], pa.int32())
    holes = pa.FixedSizeListArray.from_arrays(some, width)
    pq.write_table(table.set_column(2, "neighbours", holes), graph)
    refused("some rows have no neighbours at all")
    cosines = np.stack(table["cosine"].to_pylist()).astype(np.float32)
    pq.write_table(table.set_column(3, "cosine", lists(cosines[:, ::-1].ravel())), graph)
    refused("its neighbours are not in order")
    cosines[3, 5] = np.nan
    pq.write_table(table.set_column(3, "cosine", lists(cosines.ravel())), graph)
    refused("its neighbours are not in order")
    pq.write_table(table.set_column(3, "cosine", table["cosine"].cast(pa.list_(pa.float32()))), graph)
    refused("its column 'cosine' is list")
    pq.write_table(table.take(pa.array(np.arange(80)[::-1])), graph)
    refused("its rows are not in order")
    pq.write_table(table.slice(0, 40), graph)
    refused("it has 40 rows, not its own all")
    graph.write_bytes(flipped(intact))
    refused("is damaged or cannot be read")
    pq.write_table(pq.read_table(scores), graph)
    refused("is not a graph of neighbours; name another file")
    pq.write_table(table.drop_columns(["hash"]), graph)
    refused("has no column 'hash'")


def test_a_dry_run_and_a_verification_write_no_graph(scores, tmp_path):
    graph = tmp_path / "g.parquet"
    curate.select(scores, dry_run=True, strategy="pairwise", budget=5, graph=graph)
    assert not graph.exists()
    result = curate.select(scores, tmp_path / "a.parquet", "pairwise", 5, graph=graph)
    graph.unlink()
    verification = verify(result.receipt)
    assert not graph.exists()
    assert verification.identical
    assert lines_of(verification)["notes"] == [
        f"{graph} is no longer there: it was computed again, and nothing was written"
    ]


def test_a_folder_or_a_link_to_nothing_is_no_graph(scores, tmp_path, monkeypatch):
    graph = tmp_path / "g.parquet"
    curate.select(scores, tmp_path / "a.parquet", "pairwise", 5, graph=graph)
    monkeypatch.setattr("curate.tables.graph._computed", None)  # refused before the work
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "part-00000.parquet").write_bytes(graph.read_bytes())
    with pytest.raises(InputError, match=r"expected a graph of neighbours at .*parts, which is a folder; name another"):
        curate.select(scores, dry_run=True, strategy="pairwise", budget=5, graph=folder)
    (tmp_path / "l.parquet").symlink_to(tmp_path / "nowhere.parquet")
    with pytest.raises(InputError, match=r"at .*l.parquet, which is a link to nothing; name another"):
        curate.select(scores, tmp_path / "b.parquet", "pairwise", 5, graph=tmp_path / "l.parquet")
    assert not (tmp_path / "b.parquet").exists()
    assert not (tmp_path / "nowhere.parquet").exists()


def test_a_graph_that_another_process_made_in_the_meantime_is_used(scores, tmp_path, monkeypatch):
    plain = curate.select(scores, tmp_path / "a.parquet", "pairwise", 9, graph=tmp_path / "g.parquet")
    other = tmp_path / "h.parquet"

    def slow(*arguments):
        other.write_bytes((tmp_path / "g.parquet").read_bytes())
        return knn_graph(*arguments)

    monkeypatch.setattr("scoring.search.graph.knn_graph", slow)
    late = curate.select(scores, tmp_path / "b.parquet", "pairwise", 9, graph=other)
    assert keys(late) == keys(plain)
    assert f"{other}: the graph of 80 rows is used again" in late.notes
    assert verify(late.receipt).identical
    foreign = tmp_path / "i.parquet"

    def slower(*arguments):
        changed(tmp_path / "g.parquet", lambda notes: notes["graph"].update(model_digest="another"))
        foreign.write_bytes((tmp_path / "g.parquet").read_bytes())
        return knn_graph(*arguments)

    monkeypatch.setattr("scoring.search.graph.knn_graph", slower)
    with pytest.raises(InputError, match=r"i.parquet is the graph of another table: it has embeddings of another"):
        curate.select(scores, tmp_path / "c.parquet", "pairwise", 9, graph=foreign)


def test_a_folder_that_may_not_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("curate.tables.graph._computed", None)
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    with pytest.raises(InputError, match=r"cannot write .*g.parquet: permission denied; choose a folder"):
        stored_graph(tmp_path / "g.parquet", hashed(3), np.eye(3, dtype=np.float32), "m", write=True)


def test_the_graph_of_one_row_is_told_in_the_singular(tmp_path):
    for said in ("the graph of 1 row, to be used again", "the graph of 1 row is used again"):
        made = stored_graph(tmp_path / "g.parquet", hashed(1), np.ones((1, 3), np.float32), "m", write=True)
        assert made.notes == (f"{tmp_path / 'g.parquet'}: {said}",)


def test_a_graph_that_cannot_be_written_is_told_as_the_place_tells_it(tmp_path, monkeypatch):
    def full(*_arguments):
        raise InputError("cannot write g.parquet: the disk is full")

    monkeypatch.setattr("curate.tables.graph.write_graph", full)
    with pytest.raises(InputError, match="the disk is full"):
        stored_graph(tmp_path / "g.parquet", hashed(3), np.eye(3, dtype=np.float32), "m", write=True)
