"""Deduplication by a stored graph: the same decisions as without, whatever the graph was made for."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made import embedded, plain_rows, write_table
from typer.testing import CliRunner

import curate
from curate.cli import app
from curate.commands.verify_words import lines_of
from curate.policies.dedup.finders.neighboured import NearGraph
from curate.policies.dedup.finders.searches import NearVector
from curate.policies.verify import verify
from curate.tables.graph import Stored
from scoring.errors import InputError
from scoring.search.graph import knn_graph

EMBEDDING = {"embedding": 0.95}


def grouped(seed, sizes, width=12, spread=0.05):
    """Rows around as many directions, in a random order, and their groups."""
    generator = np.random.default_rng(seed)
    label = generator.permutation(np.repeat(range(len(sizes)), sizes))
    rows = generator.standard_normal((len(sizes), width))[label]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True) + spread * generator.standard_normal(rows.shape)
    return rows.astype(np.float32), label


def scored(path, vectors, **columns):
    return write_table(path, {"embedding": embedded(list(vectors)), **columns}, model="m")


def outputs(result):
    """What was decided and found, without the paths."""
    return [repr(pq.read_table(path).to_pylist()) for path in (result.subset, result.decisions, result.groups)]


@pytest.mark.parametrize("groups", ["star", "chain"])
@pytest.mark.parametrize("seed", range(4))
def test_decisions_by_the_graph_are_those_without_it_in_groups_of_any_size(tmp_path, seed, groups):
    vectors, _ = grouped(seed, [150, 90, 66, 65, 64, 30, *[2] * 20, *[1] * 60], spread=(0.02, 0.04, 0.05, 0.06)[seed])
    vectors[::53] = 0
    table = scored(tmp_path / "t.parquet", vectors, status=pa.array(["ok"] * 560 + ["damaged"] * 5))
    plain = curate.dedup(table, tmp_path / "a.parquet", EMBEDDING, groups=groups)
    graph = tmp_path / "g.parquet"
    made = curate.dedup(table, tmp_path / "b.parquet", EMBEDDING, groups=groups, graph=graph)
    used = curate.dedup(table, tmp_path / "c.parquet", EMBEDDING, groups=groups, graph=graph)
    assert outputs(plain) == outputs(made) == outputs(used)
    assert plain.recall == used.recall == ["embedding: every pair was compared"]
    assert plain.largest > 64
    assert any("may have more links than" in note for note in used.notes)
    assert any("is used again" in note for note in used.notes)


def test_no_search_is_built_where_every_list_is_complete(tmp_path, monkeypatch):
    vectors, label = grouped(0, [30, 20, *[1] * 100], spread=0.02)
    table, graph = scored(tmp_path / "t.parquet", vectors), tmp_path / "g.parquet"
    curate.dedup(table, tmp_path / "a.parquet", EMBEDDING, graph=graph)
    for name in (
        "curate.policies.dedup.finders.neighboured.cosine_index",
        "curate.policies.dedup.finders.searches.cosine_index",
        "scoring.search.graph.knn_graph",
    ):
        monkeypatch.setattr(name, None)
    result = curate.dedup(table, tmp_path / "b.parquet", EMBEDDING, graph=graph)
    assert result.kept == len(np.unique(label))
    assert result.largest == 30


def test_a_pair_exactly_at_the_threshold_is_decided_as_without_a_graph(tmp_path):
    generator = np.random.default_rng(5)
    ends = generator.standard_normal((40, 2, 6))
    first = ends[:, 0] / np.linalg.norm(ends[:, 0], axis=1, keepdims=True)
    across = ends[:, 1] - first * (ends[:, 1] * first).sum(1, keepdims=True)
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    cosine = 0.95 + np.linspace(-3e-7, 3e-7, 40)[:, None]
    vectors = np.concatenate([first, first * cosine + across * np.sqrt(1 - cosine**2)]).astype(np.float32)
    table = scored(tmp_path / "t.parquet", vectors)
    plain = curate.dedup(table, tmp_path / "a.parquet", EMBEDDING)
    used = curate.dedup(table, tmp_path / "b.parquet", EMBEDDING, graph=tmp_path / "g.parquet")
    assert outputs(plain) == outputs(used)
    assert 5 < used.dropped < 35


def test_one_graph_serves_the_scored_table_what_is_left_of_it_and_the_choice(tmp_path, monkeypatch):
    vectors, label = grouped(1, [100, 40, *[1] * 120], spread=0.03)
    table, graph = scored(tmp_path / "t.parquet", vectors), tmp_path / "g.parquet"
    left = curate.dedup(table, tmp_path / "a.parquet", EMBEDDING, graph=graph)
    assert left.kept == len(np.unique(label))
    digest = graph.read_bytes()
    monkeypatch.setattr("curate.tables.graph._computed", None)
    again = curate.dedup(left.subset, tmp_path / "b.parquet", EMBEDDING, graph=graph)
    assert (again.kept, again.dropped) == (left.kept, 0)
    picked = curate.select(left.subset, tmp_path / "c.parquet", "pairwise", 20, graph=graph)
    assert any(f"the graph of 260 rows is used again, for {left.kept} of them" in note for note in picked.notes)
    assert graph.read_bytes() == digest
    assert verify(picked.receipt).identical


@pytest.mark.parametrize("seed", range(12))
def test_what_is_found_by_short_lists_is_what_a_search_of_all_rows_finds(seed):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 12, 14)
    vectors, _ = grouped(seed, sizes.tolist(), spread=0.1)
    threshold, k = generator.uniform(0.8, 0.97), int(generator.integers(1, 9))
    rows = plain_rows(embedding=vectors)
    graph = knn_graph(vectors, k)
    stored = Stored(graph, graph.cosine[:, -1], "g.parquet", "", ())
    mine = NearGraph(vectors, threshold, stored, np.arange(len(rows)), rows.hashes)
    plain = NearVector(vectors, threshold, "embedding", ties=rows.hashes)
    for _ in range(4):
        some, among = generator.permutation(len(rows))[: generator.integers(1, len(rows))], generator.random(len(rows))
        for name in ("links", "first"):
            links = [getattr(each, name)(some, among < 0.7) for each in (mine, plain)]
            triples = [set(zip(f.query.tolist(), f.row.tolist(), f.similarity.tolist(), strict=True)) for f in links]
            assert triples[0] == triples[1]
            assert len(triples[0]) == len(links[0])


def test_embeddings_of_double_width_are_the_same_rows_for_dedup_and_choice(tmp_path):
    vectors, _ = grouped(2, [20, *[1] * 40], spread=0.01)  # all of a group near any of it, whichever wins ties
    huge = vectors.astype(np.float64) * 1e60
    table = write_table(tmp_path / "t.parquet", {"embedding": pa.array(huge.tolist(), pa.list_(pa.float64()))})
    made = curate.dedup(table, tmp_path / "a.parquet", EMBEDDING, graph=tmp_path / "g.parquet")
    picked = curate.select(made.subset, tmp_path / "b.parquet", "pairwise", 10, graph=tmp_path / "g.parquet")
    assert picked.kept == 10
    assert any(f"the graph of 60 rows is used again, for {made.kept} of them" in note for note in picked.notes)


def test_the_graph_as_typed(tmp_path):
    vectors, label = grouped(4, [70, 10, *[1] * 30])
    table, graph = scored(tmp_path / "t.parquet", vectors), tmp_path / "g.parquet"
    typed = ["dedup", str(table), "--finder", "embedding", "--threshold", "0.9", "--graph", str(graph)]
    first = CliRunner().invoke(app, [*typed, "-o", str(tmp_path / "a.parquet")])
    assert first.exit_code == 0, first.output
    assert f"{graph}: the graph of 110 rows, to be used again" in first.output
    again = CliRunner().invoke(app, [*typed, "-o", str(tmp_path / "b.parquet"), "--json"])
    assert json.loads(again.stdout)["kept"] == len(np.unique(label))
    wrong = CliRunner().invoke(app, ["dedup", str(table), "--finder", "embedding", "--graph", str(table), "--dry-run"])
    assert wrong.exit_code == 1
    assert "is not a graph of neighbours; name another file with --graph" in wrong.output
    info = CliRunner().invoke(app, ["info", str(graph)])
    assert info.output.splitlines()[0] == f"{graph}: graph"
    assert "embedding_hash" in info.output


@pytest.mark.parametrize("threshold", [0.6, 0.9, 0.97])
def test_a_graph_of_more_rows_gives_some_of_them_the_decisions_they_have_alone(tmp_path, threshold):
    vectors, _ = grouped(2, [140, 70, *[3] * 20, *[1] * 40], spread=0.08)
    full, graph = scored(tmp_path / "t.parquet", vectors), tmp_path / "g.parquet"
    curate.dedup(full, tmp_path / "a.parquet", EMBEDDING, graph=graph)
    some = np.random.default_rng(0).permutation(len(vectors))[:150]
    part = tmp_path / "p.parquet"
    pq.write_table(pq.read_table(full).take(pa.array(some)), part)
    finders = {"embedding": threshold}
    plain = curate.dedup(part, tmp_path / "b.parquet", finders)
    used = curate.dedup(part, tmp_path / "c.parquet", finders, graph=graph)
    assert outputs(plain) == outputs(used)


def test_a_graph_serves_the_table_that_is_compared_with_another(tmp_path):
    vectors, _ = grouped(3, [80, 20, *[1] * 60], spread=0.03)
    others, _ = grouped(3, [80, 20, *[1] * 60], spread=0.04)
    table = scored(tmp_path / "t.parquet", vectors)
    other = scored(tmp_path / "o.parquet", others[:70], key=pa.array([f"o{i}" for i in range(70)]))
    plain = curate.dedup(table, tmp_path / "a.parquet", EMBEDDING, against=other)
    used = curate.dedup(table, tmp_path / "b.parquet", EMBEDDING, against=other, graph=tmp_path / "g.parquet")
    assert outputs(plain) == outputs(used)
    assert used.n_leaks > 0


def test_the_receipt_names_the_graph_and_verify_goes_by_it(tmp_path):
    vectors, _ = grouped(4, [70, 10, *[1] * 30])
    table, graph = scored(tmp_path / "t.parquet", vectors), tmp_path / "g.parquet"
    result = curate.dedup(table, tmp_path / "a.parquet", EMBEDDING, graph=graph)
    noted = json.loads(result.receipt.read_text())["policy"][0]["graph"]
    assert noted["path"] == str(graph)
    assert verify(result.receipt).identical
    graph.rename(tmp_path / "elsewhere")
    again = verify(result.receipt)
    assert not graph.exists()
    assert again.identical
    assert lines_of(again)["notes"] == [f"{graph} is no longer there: it was computed again, and nothing was written"]
    (tmp_path / "elsewhere").rename(graph)
    moved = vectors.copy()
    moved[3] = moved[4]
    scored(tmp_path / "other.parquet", moved)
    with pytest.raises(InputError, match="it has other embeddings of 1 of the same 110 keys"):
        verify(result.receipt, tmp_path / "other.parquet")


def test_a_dry_run_writes_no_graph_and_none_is_written_over_an_output(tmp_path):
    vectors, _ = grouped(4, [20, *[1] * 30])
    table, graph = scored(tmp_path / "t.parquet", vectors), tmp_path / "g.parquet"
    plain = curate.dedup(table, None, EMBEDDING, dry_run=True)
    counted = curate.dedup(table, None, EMBEDDING, dry_run=True, graph=graph)
    assert counted.kept == plain.kept
    assert not graph.exists()
    with pytest.raises(InputError, match="is read by --graph and would be written over"):
        curate.dedup(table, graph, EMBEDDING, graph=graph)
    with pytest.raises(InputError, match="is read by --graph and would be written over"):
        curate.dedup(table, tmp_path / "g.parquet", EMBEDDING, graph=tmp_path / "g.decisions.parquet")


def test_a_graph_where_no_embeddings_are_compared_is_refused(tmp_path):
    vectors, _ = grouped(4, [20, *[1] * 30])
    table = scored(tmp_path / "t.parquet", vectors, sha256=pa.array([f"s{i}" for i in range(50)]))
    with pytest.raises(
        InputError,
        match="--graph is for the finders embedding, crop, near-duplicate; got bytes; add --finder embedding",
    ):
        curate.dedup(table, None, {"bytes": None}, dry_run=True, graph=tmp_path / "g.parquet")
