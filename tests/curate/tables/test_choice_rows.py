"""A table as arrays: in the order of the hashes of the keys, whatever the order of the file."""

import numpy as np
import pytest
from choosing import columns_of, table, write

from curate.policies.select.prepare import prepare
from curate.policies.select.request import SelectRequest
from curate.probes.probabilities import Labelled, codes_of
from curate.tables.digests import tie_breaks
from curate.tables.needs import EMBEDDINGS, Needs, Signal, Signals, signal
from curate.tables.rows import read_rows
from curate.tables.table import open_table
from scoring.errors import InputError

CONDITION = "photographer == 'ann'"
EVERYTHING = Needs(
    representations=EMBEDDINGS,
    numbers=("kappa_mcinfonce", "aesthetic"),
    names=("label", "photographer"),
    conditions=(("--labelled-where", CONDITION),),
)


def test_rows_are_in_the_order_of_their_hashes_with_their_columns(tmp_path):
    columns = columns_of(50)
    rows = read_rows(open_table(write(tmp_path / "s.parquet", columns)), EVERYTHING, by_hash=True)
    hashes = tie_breaks([key.encode() for key in columns["key"]])
    order = np.argsort(hashes)
    assert rows.place.tolist() == order.tolist()
    assert rows.hashes.tolist() == hashes[order].tolist()
    assert np.array_equal(rows.embedding, np.array(columns["embedding"])[order])
    assert np.allclose(rows.numbers["aesthetic"], columns["aesthetic"][order])
    labels = rows.names["label"]
    assert [labels.names[code] for code in labels.codes] == [columns["label"][i] for i in order]
    who = rows.names["photographer"]
    assert [who.names[c] if c >= 0 else None for c in who.codes] == [columns["photographer"][i] for i in order]
    assert rows.holds(CONDITION).tolist() == [columns["photographer"][i] == "ann" for i in order]


def test_another_order_of_the_file_gives_the_same_arrays_and_digest(tmp_path):
    columns = columns_of(50)
    first = read_rows(open_table(write(tmp_path / "a.parquet", columns)), EVERYTHING, by_hash=True)
    turned = np.random.default_rng(0).permutation(50)
    second = read_rows(open_table(write(tmp_path / "b.parquet", columns, turned)), EVERYTHING, by_hash=True)
    assert first.digest == second.digest
    assert turned[second.place].tolist() == first.place.tolist()
    for name in ("hashes", "embedding"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert np.array_equal(first.holds(CONDITION), second.holds(CONDITION))
    assert np.array_equal(first.names["label"].codes, second.names["label"].codes)
    assert first.names["label"].names == second.names["label"].names


def test_embeddings_that_cannot_be_used_are_distinguished(tmp_path):
    vectors = [*columns_of(6)["embedding"]]
    vectors[1], vectors[2], vectors[3], vectors[4] = None, np.full(8, np.nan), np.zeros(8), np.full(8, np.inf)
    rows = read_rows(
        open_table(table(tmp_path / "s.parquet", 6, embedding=vectors)), Needs(representations=EMBEDDINGS), by_hash=True
    )
    problems = np.empty(6, int)
    problems[rows.place] = rows.embedding_problem
    assert problems.tolist() == [0, 1, 1, 2, 1, 0]
    assert np.isfinite(rows.embedding).all()


def test_rows_without_the_columns_of_the_strategy_are_no_candidates(tmp_path):
    vectors = [*columns_of(8)["embedding"]]
    vectors[0] = None
    status = ["ok"] * 8
    status[1] = "damaged"
    kappa = np.arange(1, 9, dtype=np.float32)
    kappa[2] = np.nan
    path = table(tmp_path / "s.parquet", 8, embedding=vectors, status=status, kappa_mcinfonce=kappa)
    rows = read_rows(open_table(path), Needs(representations=EMBEDDINGS, numbers=("kappa_mcinfonce",)), by_hash=True)
    signals = Signals(quality=Signal("kappa_mcinfonce", 1))
    of_place = np.empty(8, int)
    of_place[rows.place] = np.arange(8)
    labelled = Labelled(np.sort(of_place[[2, 0, 5]]))
    ready = prepare(rows, SelectRequest("auto", "2", noise_guard=True), labelled, signals=signals)
    picked = sorted(rows.place[ready.table_row[ready.pool.candidates]].tolist())
    assert picked == [3, 4, 6, 7]
    # a labelled row without a value in the quality column still keeps picks away; one without an embedding cannot
    assert sorted(rows.place[ready.table_row[ready.pool.labelled]].tolist()) == [2, 5]
    why = {place: ready.why[of_place[place]] for place in range(8)}
    assert {place: ready.reasons[code] for place, code in why.items() if code >= 0} == {
        0: "has an embedding that is missing, NaN or infinite, which auto uses",
        2: "kappa_mcinfonce has no value (null, NaN or infinite)",
    }
    by_chance = prepare(rows, SelectRequest("random", "2"))
    assert sorted(rows.place[by_chance.table_row[by_chance.pool.candidates]].tolist()) == [0, 2, 3, 4, 5, 6, 7]


def test_quality_is_a_rank_in_the_direction_of_the_column(tmp_path):
    rows = read_rows(
        open_table(table(tmp_path / "s.parquet", 40)),
        Needs(representations=EMBEDDINGS, numbers=("unc_losspred",)),
        by_hash=True,
    )
    ready = prepare(
        rows, SelectRequest("auto", "2", discount=True), signals=Signals(quality=Signal("unc_losspred", -1))
    )
    place = np.argsort(np.argsort(-rows.numbers["unc_losspred"]))
    assert np.allclose(ready.pool.quality, (place + 0.5) / 40)


def test_the_probabilities_match_the_linear_probe(tmp_path):
    from curate.probes.linear import fit_linear_probe, spread_of

    rows = read_rows(
        open_table(table(tmp_path / "s.parquet", 60)), Needs(representations=EMBEDDINGS, names=("label",)), by_hash=True
    )
    codes_of_labels = rows.names["label"]
    labelled = Labelled(np.arange(0, 60, 2), codes_of_labels.codes[::2].astype(np.int64), tuple(codes_of_labels.names))
    ready = prepare(rows, SelectRequest("margin", "2"), labelled)
    probe = fit_linear_probe(rows.embedding[::2], labelled.codes, 5, spread=spread_of(rows.embedding))
    assert np.allclose(ready.pool.probabilities, probe.predict(rows.embedding), atol=1e-6)
    assert (ready.pool.probabilities.argmax(1) == codes_of_labels.codes).mean() > 0.9


def test_labels_are_numbered_in_their_own_order():
    codes, classes = codes_of(["b", None, "a", "b"])
    assert (codes.tolist(), classes) == ([1, -1, 0, 1], ("a", "b"))


@pytest.mark.parametrize(
    ("text", "certain_first", "expected"),
    [
        ("kappa_mcinfonce", True, ("kappa_mcinfonce", 1)),
        ("kappa_mcinfonce", False, ("kappa_mcinfonce", -1)),
        ("unc_losspred", True, ("unc_losspred", -1)),
        ("unc_losspred", False, ("unc_losspred", 1)),
        ("max:aesthetic", False, ("aesthetic", 1)),
        ("min:kappa_mcinfonce", True, ("kappa_mcinfonce", -1)),
    ],
)
def test_the_direction_of_a_column(tmp_path, text, certain_first, expected):
    ranking = signal(text, open_table(table(tmp_path / "s.parquet", 4)), certain_first=certain_first, flag="--score")
    assert (ranking.column, ranking.sign) == expected


@pytest.mark.parametrize(
    ("needs", "other", "said"),
    [
        (Needs(representations=EMBEDDINGS), {"embedding": None}, "no 'embedding' column"),
        (Needs(numbers=("label",)), {}, "column 'label'"),
        (Needs(numbers=("kapa_mcinfonce",)), {}, "did you mean 'kappa_mcinfonce'"),
        (Needs(names=("embedding",)), {}, "column 'embedding'"),
        (Needs(), {"status": [1] * 4}, "column 'status'"),
        (Needs(conditions=(("--labelled-where", "nothing == 1"),)), {}, "--labelled-where .*nothing"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_line(tmp_path, needs, other, said):
    columns = columns_of(4)
    columns.update(other)
    columns = {name: values for name, values in columns.items() if values is not None}
    with pytest.raises(InputError, match=said):
        read_rows(open_table(write(tmp_path / "s.parquet", columns)), needs, by_hash=True)
