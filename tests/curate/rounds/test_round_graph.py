"""The graph of neighbours in a folder of rounds: made once, used by every round, and never trusted blindly."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rounds_table import CLASSES, answer, table
from test_round_folder import edit_state

from curate.rounds.files.folder import open_folder
from curate.rounds.import_labels import round_import
from curate.rounds.init import round_init
from curate.rounds.next import round_next
from curate.rounds.state import batch
from curate.rounds.state.graph import PoolGraph
from curate.rounds.verify import verify_rounds
from curate.tables.table import open_table
from scoring.errors import InputError

SPARSE = [
    ("pairwise", {"neighbours": "6"}),
    ("prob-cover", {"exact_rows": "1", "neighbours": "6"}),
    ("facility-location", {"exact_rows": "1", "neighbours": "20"}),
]


@pytest.fixture
def truth(tmp_path):
    return table(tmp_path / "t.parquet")


def begin(tmp_path, name="r", strategy="pairwise", parameters=None, **settings):
    all_settings = {"classes": CLASSES, "batch": 10, "holdout": "20", **settings}
    round_init(tmp_path / name, tmp_path / "t.parquet", strategy=strategy, set=parameters, **all_settings)
    return tmp_path / name


def whole_round(folder, truth, tmp_path):
    made = round_next(folder)
    round_import(folder, answer(made, truth, tmp_path / f"{folder.name}-{made.number}.csv"))
    return made


def keys(made):
    return pq.read_table(made.folder / "batch.parquet")["key"].to_pylist()


@pytest.mark.parametrize(("strategy", "parameters"), SPARSE)
def test_rounds_with_the_file_ask_what_rounds_without_ask(tmp_path, truth, monkeypatch, strategy, parameters):
    folder = begin(tmp_path, "a", strategy, parameters)
    with_file = [keys(whole_round(folder, truth, tmp_path)) for _ in range(3)]
    assert (folder / "graph.parquet").is_file()
    monkeypatch.setattr(batch, "computes_graph", lambda selector, n: False)
    plain = begin(tmp_path, "b", strategy, parameters)
    assert [keys(whole_round(plain, truth, tmp_path)) for _ in range(3)] == with_file
    assert not (plain / "graph.parquet").exists()


def test_the_graph_is_computed_once_of_all_rows_but_the_held_out_ones(tmp_path, truth, monkeypatch):
    folder = begin(tmp_path)
    first = whole_round(folder, truth, tmp_path)
    assert open_table(folder / "graph.parquet").n_rows == 100
    assert first.state["graph"]["file"] == "graph.parquet"
    assert any(note.startswith("graph.parquet: the graph of 100 rows, to be used again") for note in first.notes)
    monkeypatch.setattr("scoring.search.graph.knn_graph", None)
    second = whole_round(folder, truth, tmp_path)
    assert second.state["graph"] == first.state["graph"]
    assert any("graph.parquet: the graph of 100 rows is used again" in note for note in second.notes)
    assert first.state["graph"]["sha256"] == hashlib.sha256((folder / "graph.parquet").read_bytes()).hexdigest()
    assert verify_rounds(folder).identical


def test_a_graph_that_was_deleted_is_made_again(tmp_path, truth):
    folder = begin(tmp_path)
    whole_round(folder, truth, tmp_path)
    before = (folder / "graph.parquet").read_bytes()
    (folder / "graph.parquet").unlink()
    assert not open_folder(folder).changed()
    assert verify_rounds(folder).identical
    assert not (folder / "graph.parquet").exists()  # a verification writes nothing
    whole_round(folder, truth, tmp_path)
    assert (folder / "graph.parquet").read_bytes() == before
    assert verify_rounds(folder).identical


def test_a_graph_that_was_damaged_or_swapped_is_one_line_and_makes_no_round(tmp_path, truth):
    folder = begin(tmp_path)
    path = folder / "graph.parquet"
    path.write_bytes(b"not a table")
    with pytest.raises(InputError, match=r"graph.parquet is not a Parquet file"):
        round_next(folder)
    path.unlink()
    whole_round(folder, truth, tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:3000] + bytes([data[3000] ^ 1]) + data[3001:])
    with pytest.raises(InputError, match=r"graph.parquet is not what the last round used; delete it, and it is"):
        round_next(folder)
    other = begin(tmp_path, "other", holdout="0")
    round_next(other)
    path.write_bytes((other / "graph.parquet").read_bytes())
    with pytest.raises(InputError, match=r"graph.parquet is not what the last round used; delete it, and it is"):
        round_next(folder)
    assert len(open_folder(folder).rounds) == 1
    path.unlink()
    assert round_next(folder).number == 2


def test_a_graph_that_was_changed_is_no_fault_of_the_rounds_that_went_by_another(tmp_path, truth):
    folder = begin(tmp_path, holdout="0")
    for _ in range(2):
        whole_round(folder, truth, tmp_path)
    path = folder / "graph.parquet"
    data, table = path.read_bytes(), pq.read_table(path)
    assert verify_rounds(folder).identical
    width = table.schema.field("neighbours").type.list_size
    near = np.concatenate(table["neighbours"].to_pylist()).reshape(-1, width)
    other = np.random.default_rng(0).permuted(near, axis=1).astype(np.int32)
    kind = table.schema.field("neighbours").type
    forged = pa.FixedSizeListArray.from_arrays(pa.array(other.ravel()), type=kind)
    pq.write_table(table.set_column(2, "neighbours", forged), path)
    for broken in (path.read_bytes(), data[:2000], b""):
        path.write_bytes(broken)
        verified = verify_rounds(folder)
        assert [each.identical for each in verified.rounds] == [True, True]
        assert verified.problems == ["graph.parquet is not what any round used; delete it, and it is made again"]
        assert path.read_bytes() == broken
    path.unlink()
    path.mkdir()
    (path / "part-00000.parquet").write_bytes(data)
    assert "graph.parquet is not what any round used" in verify_rounds(folder).problems[0]
    with pytest.raises(InputError, match=r"graph.parquet is not what the last round used"):
        round_next(folder)


def test_each_round_is_chosen_again_by_the_graph_of_its_own_state(tmp_path, truth, monkeypatch):
    """The file is read for the round that used it; for one that used another the graph is computed, once."""
    folder = begin(tmp_path)
    for _ in range(3):
        whole_round(folder, truth, tmp_path)
    used = []
    real = PoolGraph._graph_of
    monkeypatch.setattr(PoolGraph, "_graph_of", lambda self, *rows: used.append(self.use_file) or real(self, *rows))
    assert verify_rounds(folder).identical
    assert used == [True]
    state = folder / "rounds" / "0003" / "state.json"
    for labels in state.parent.glob("labels-*.parquet"):
        labels.unlink()
    edit_state(state, graph={"file": "graph.parquet", "sha256": "0" * 64})
    used.clear()
    assert verify_rounds(folder).identical
    assert used == [True, False]


def test_a_round_that_died_after_its_graph_was_made_is_made_again_as_it_was(tmp_path, truth, monkeypatch):
    complete = round_next(begin(tmp_path, "whole"))
    folder = begin(tmp_path)

    def dies(*_args, **_how):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("curate.rounds.next._export", dies)
        with pytest.raises(KeyboardInterrupt):
            round_next(folder)
    assert (folder / "graph.parquet").is_file()
    assert not open_folder(folder).rounds
    assert keys(round_next(folder)) == keys(complete)


def test_strategies_that_need_no_graph_make_none(tmp_path, truth):
    for name, strategy in (("a", "auto"), ("b", "typiclust"), ("c", "prob-cover"), ("d", "random")):
        made = round_next(begin(tmp_path, name, strategy))
        assert made.state["graph"] is None
        assert not (tmp_path / name / "graph.parquet").exists()


def test_images_that_are_skipped_leave_the_graph_as_it_is(tmp_path, truth, monkeypatch):
    folder = begin(tmp_path, batch=12, control=0.0, holdout="0")
    made = round_next(folder)
    skipped = keys(made)[:4]
    round_import(folder, answer(made, truth | dict.fromkeys(skipped, "skip"), tmp_path / "s.csv"))
    monkeypatch.setattr("curate.tables.graph._computed", None)
    second = round_next(folder)
    assert not set(skipped) & set(keys(second))
    assert np.isfinite(pq.read_table(second.folder / "batch.parquet")["gain"].to_numpy()).all()
